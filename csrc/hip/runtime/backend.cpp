#include "hip/runtime/backend.h"
#include "error.h"
#include "hip/runtime/pack.h"
#include "hip/runtime/plan.h"
#include <cstring>
#include <thread>

namespace lucebox::hip {

Rows rows_of(const ops::Acts& acts) {
    return {acts.x, reinterpret_cast<uint8_t*>(acts.q), acts.d, reinterpret_cast<float*>(acts.sum), acts.columns};
}

namespace {
uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
uint64_t batch_bytes(const ops::Limits& l) {
    return aligned(sizeof(ops::Batch) + static_cast<uint64_t>(l.max_rows) * static_cast<uint64_t>(l.rope_dims) * sizeof(float));
}
uint64_t best_bytes(const ops::Limits& l) { return aligned(static_cast<uint64_t>(l.max_rows) * kArgmaxParts * sizeof(Best)); }
uint64_t part_bytes(const ops::Limits& l) {
    const int row = std::max(l.heads * (l.head_dim + 2), l.draft_heads * (l.draft_head_dim + 2));
    return aligned(static_cast<uint64_t>(kRowParts) * static_cast<uint64_t>(row) * sizeof(float));
}
uint64_t candidate_bytes(const ops::Limits& l) {
    return l.draft_heads ? aligned(static_cast<uint64_t>(l.max_rows) * kTopKParts * ops::kCandidates * sizeof(Best)) : 0;
}
}  // namespace

int HipBackend::launch_rows(int rows) const { return rows == 0 ? 0 : row_bucket(rows); }

// One upload: the batch, whose pointers are the device's, and behind it the angles of its rows.
const ops::Batch* HipBackend::use_batch(const ops::Batch& batch) {
    LUCE_CHECK(batch_ && batch.rows >= 0 && batch.rows <= limits_.max_rows, kRequest, "a batch of ", batch.rows, " rows; scratch was taken for ",
               limits_.max_rows);
    LUCE_CHECK(batch.rope_dims <= limits_.rope_dims, kRequest, "angles of ", batch.rope_dims, " dimensions; scratch was taken for ", limits_.rope_dims);
    const size_t angles = batch.rope_cos ? static_cast<size_t>(batch.rows) * static_cast<size_t>(batch.rope_dims / 2) : 0;
    batch_bytes_.resize(sizeof batch + 2 * angles * sizeof(float));
    ops::Batch own = batch;
    own.rope_cos = reinterpret_cast<float*>(batch_ + 1), own.rope_sin = own.rope_cos + angles;
    memcpy(batch_bytes_.data(), &own, sizeof own);
    if (angles) {
        memcpy(batch_bytes_.data() + sizeof own, batch.rope_cos, angles * sizeof(float));
        memcpy(batch_bytes_.data() + sizeof own + angles * sizeof(float), batch.rope_sin, angles * sizeof(float));
    }
    device_->upload(batch_, batch_bytes_.data(), batch_bytes_.size());
    int context = ops::kPage;
    for (int r = 0; r < batch.rows; r++)
        while (context <= batch.position[r]) context *= 2;
    shape_ = {row_bucket(batch.rows), row_bucket(batch.spans), context, row_bucket(batch.wanted)};
    return batch_;
}

void HipBackend::run(int part, const std::function<void()>& step) {
    steps_.run({part, shape_.rows, shape_.spans, shape_.context, part == 0 ? 0 : shape_.wanted}, step);
}

void HipBackend::launch_raw(const std::string& name, Dim grid, int threads, uint32_t shared_bytes, const void* args, size_t args_bytes) {
    const Kernel*& kernel = kernels_[name];
    if (!kernel) kernel = device_->find(name);
    LUCE_CHECK(kernel, kDevice, device_->name(), " has no kernel ", name, "; its code object is of another version, build it again");
    steps_.launch(kernel, grid, static_cast<uint32_t>(threads), shared_bytes, args, static_cast<uint32_t>(args_bytes));
}

uint64_t HipBackend::packed_bytes(gguf::Type type, uint64_t rows, uint64_t columns) const { return hip::packed_bytes(type, rows, columns); }

// Parts of some 4 MB are packed by all cores while the device takes those before.
ops::Weight HipBackend::prepare(const gguf::Tensor& tensor, uint8_t* packed) {
    const ops::Weight w{tensor.type, static_cast<int>(tensor.rows()), static_cast<int>(tensor.columns()), tensor.data, packed};
    const uint64_t columns = tensor.columns(), each = hip::packed_bytes(w.type, 32, columns);
    const int rows = 32 * static_cast<int>(std::max<uint64_t>(1, (4 << 20) / each)), parts = ceil_div(w.rows, rows);
    const int workers = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, std::min(parts, 32));
    std::vector<std::vector<uint8_t>> packs(static_cast<size_t>(workers));
    for (int first = 0; first < parts; first += workers) {
        const int last = std::min(parts, first + workers);
        {
            std::vector<std::jthread> threads;
            for (int part = first; part < last; part++)
                threads.emplace_back([&, part] {
                    const int from = part * rows, to = std::min(w.rows, from + rows);
                    auto& pack_bytes = packs[static_cast<size_t>(part - first)];
                    pack_bytes.resize(hip::packed_bytes(w.type, static_cast<uint64_t>(to - from), columns));
                    pack(w.type, tensor.data, w.rows, w.columns, from, to, pack_bytes.data());
                });
        }
        for (int part = first; part < last; part++) {
            const auto& bytes = packs[static_cast<size_t>(part - first)];
            device_->upload(packed + hip::packed_bytes(w.type, static_cast<uint64_t>(part * rows), columns), bytes.data(), bytes.size());
        }
    }
    return w;
}

uint64_t HipBackend::scratch_bytes(const ops::Limits& limits) const { 
    return batch_bytes(limits) + best_bytes(limits) + part_bytes(limits) + candidate_bytes(limits) + kPartialBytes + kArrivals * sizeof(uint32_t);
}

void HipBackend::use_scratch(const ops::Limits& limits, void* scratch) {
    LUCE_CHECK(limits.max_rows >= kTileRows && limits.max_rows == row_bucket(limits.max_rows), kRequest, "max_rows is ", limits.max_rows,
               "; this backend takes 16, 32, 64 or 128: rows are kept in tiles and launched in buckets");
    limits_ = limits;
    uint8_t* at = static_cast<uint8_t*>(scratch);
    batch_ = reinterpret_cast<ops::Batch*>(at);
    best_ = reinterpret_cast<Best*>(at + batch_bytes(limits));
    parts_ = reinterpret_cast<float*>(at + batch_bytes(limits) + best_bytes(limits));
    candidates_ = reinterpret_cast<Best*>(at + batch_bytes(limits) + best_bytes(limits) + part_bytes(limits));
    partial_ = reinterpret_cast<float*>(at + batch_bytes(limits) + best_bytes(limits) + part_bytes(limits) + candidate_bytes(limits));
    arrived_ = reinterpret_cast<uint32_t*>(partial_ + kPartialBytes / sizeof(float));
    device_->clear(arrived_, kArrivals * sizeof(uint32_t));
}

}  // namespace lucebox::hip
