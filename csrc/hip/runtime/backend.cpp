#include "hip/runtime/backend.h"
#include "error.h"
#include "hip/runtime/pack.h"
#include "hip/runtime/plan.h"
#include <cstring>
#include <thread>
#include <utility>

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
ops::Batch* HipBackend::use_batch(ops::Batch& batch, ops::Place place) {
    const auto at = static_cast<size_t>(place);
    LUCE_CHECK(batch_[0] && batch.rows >= 0 && batch.rows <= limits_.max_rows, kRequest, "a batch of ", batch.rows, " rows; scratch was taken for ",
               limits_.max_rows);
    LUCE_CHECK(batch.rope_dims <= limits_.rope_dims, kRequest, "angles of ", batch.rope_dims, " dimensions; scratch was taken for ", limits_.rope_dims);
    const size_t angles = batch.rope_cos ? static_cast<size_t>(batch.rows) * static_cast<size_t>(batch.rope_dims / 2) : 0;
    batch_bytes_.resize(sizeof batch + 2 * angles * sizeof(float));
    ops::Batch own = batch;
    own.rope_cos = reinterpret_cast<float*>(batch_[at] + 1), own.rope_sin = own.rope_cos + angles;
    memcpy(batch_bytes_.data(), &own, sizeof own);
    if (angles) {
        memcpy(batch_bytes_.data() + sizeof own, batch.rope_cos, angles * sizeof(float));
        memcpy(batch_bytes_.data() + sizeof own + angles * sizeof(float), batch.rope_sin, angles * sizeof(float));
    }
    device_->upload(batch_[at], batch_bytes_.data(), batch_bytes_.size());
    int context = ops::kPage;
    for (int r = 0; r < batch.rows; r++)
        while (context <= batch.position[r]) context *= 2;
    shape_[at] = {row_bucket(batch.rows), row_bucket(batch.spans), context};
    return batch_[at];
}

const StepShape& HipBackend::shape_of(const ops::Batch* batch) const {
    for (size_t at = 0; at < kPlaces; at++)
        if (batch_[at] == batch) return shape_[at];
    throw Error(Kind::kRequest, "an op's batch is not one of this backend's");
}

void HipBackend::run(const std::vector<int>& part, std::initializer_list<const ops::Batch*> batches, const std::function<void()>& step) {
    std::vector<int> key = part;
    for (const ops::Batch* batch : batches) {
        const StepShape& shape = shape_of(batch);
        key.insert(key.end(), {shape.rows, shape.spans, shape.context});
    }
    steps_.run(key, step);
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
    return kPlaces * batch_bytes(limits) + best_bytes(limits) + part_bytes(limits) + candidate_bytes(limits) + kPartialBytes + kArrivals * sizeof(uint32_t);
}

void HipBackend::use_scratch(const ops::Limits& limits, void* scratch) {
    LUCE_CHECK(limits.max_rows >= kTileRows && limits.max_rows == row_bucket(limits.max_rows), kRequest, "max_rows is ", limits.max_rows,
               "; this backend takes 16, 32, 64 or 128: rows are kept in tiles and launched in buckets");
    limits_ = limits;
    uint8_t* at = static_cast<uint8_t*>(scratch);
    const auto take = [&at](uint64_t bytes) { return std::exchange(at, at + bytes); };
    for (ops::Batch*& batch : batch_) batch = reinterpret_cast<ops::Batch*>(take(batch_bytes(limits)));
    best_ = reinterpret_cast<Best*>(take(best_bytes(limits)));
    parts_ = reinterpret_cast<float*>(take(part_bytes(limits)));
    candidates_ = reinterpret_cast<Best*>(take(candidate_bytes(limits)));
    partial_ = reinterpret_cast<float*>(take(kPartialBytes));
    arrived_ = reinterpret_cast<uint32_t*>(take(kArrivals * sizeof(uint32_t)));
    device_->clear(arrived_, kArrivals * sizeof(uint32_t));
}

}  // namespace lucebox::hip
