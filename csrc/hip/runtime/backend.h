// The HIP backend: ops over a Device, the emulator's or a driver's. An op checks, plans and launches; nothing waits but download.
#pragma once
#include "hip/params.h"
#include "hip/runtime/device.h"
#include "hip/runtime/steps.h"
#include "ops/backend.h"
#include <map>
#include <vector>

namespace lucebox::hip {

// What launches of a step are sized for; a captured step is replayed for every batch within it.
struct StepShape {
    int rows = 1;      // 1, 2, 4, ... 128
    int spans = 1;     // 1, 2, 4, 8
    int context = 1;   // keys that any row may see: a page, two, four, ...
};

class HipBackend final : public ops::Backend {
public:
    explicit HipBackend(std::unique_ptr<Device> device, LaunchMode mode = LaunchMode::kDirect)
        : device_(std::move(device)), steps_(*device_, mode) {}

    std::string name() const override { return device_->name(); }
    std::string launch_mode() const override { return to_string(steps_.mode()); }
    Device& device() { return *device_; }
    const Steps& steps() const { return steps_; }

    uint64_t free_bytes() const override { return device_->free_bytes(); }
    void* allocate(uint64_t bytes) override { return device_->allocate(bytes); }
    bool reads_mapped() const override { return false; }
    uint64_t packed_bytes(gguf::Type type, uint64_t rows, uint64_t columns) const override;
    ops::Weight prepare(const gguf::Tensor& tensor, uint8_t* packed) override;
    // limits.max_rows is 16, 32, 64 or 128: rows are kept in tiles of 16 (params.h) and launched in buckets.
    uint64_t scratch_bytes(const ops::Limits& limits) const override;
    void use_scratch(const ops::Limits& limits, void* scratch) override;

    ops::Batch* use_batch(ops::Batch& batch, ops::Place place) override;
    int launch_rows(int rows) const override;
    void run(const std::vector<int>& part, std::initializer_list<const ops::Batch*> batches, const std::function<void()>& step) override;

    void embed(const ops::Embed& op) override;
    void norm(const ops::Norm& op) override;
    void matmul(const ops::Matmul& op) override;
    void swiglu(const ops::Swiglu& op) override;
    void deltanet(const ops::Deltanet& op) override;
    void attention(const ops::Attention& op) override;
    void argmax(const ops::Argmax& op) override;
    void tap(const ops::Tap& op) override;
    void quantize(const ops::Quantize& op) override;
    void draft_context(const ops::DraftContext& op) override;
    void draft_conv(const ops::DraftConv& op) override;
    void draft_attention(const ops::DraftAttention& op) override;
    void top_k(const ops::TopK& op) override;
    void lattice(const ops::Lattice& op) override;
    void walk(const ops::Walk& op) override;

    void clear(void* at, uint64_t bytes) override { device_->clear(at, bytes); }
    void copy(void* to, const void* from, uint64_t bytes) override { device_->copy(to, from, bytes); }
    void download(void* host, const void* from, uint64_t bytes) override { device_->download(host, from, bytes); }
    void upload(void* to, const void* host, uint64_t bytes) override { device_->upload(to, host, bytes); }

private:
    static constexpr int kPlaces = 3;  // ops::Place
    const StepShape& shape_of(const ops::Batch* batch) const;
    void launch_raw(const std::string& kernel, Dim grid, int threads, uint32_t shared_bytes, const void* args, size_t args_bytes);
    template <class Args> void launch(const std::string& kernel, Dim grid, int threads, const Args& args, uint32_t shared_bytes = 0) {
        launch_raw(kernel, grid, threads, shared_bytes, &args, sizeof args);
    }

    std::unique_ptr<Device> device_;
    Steps steps_;
    std::map<std::string, const Kernel*> kernels_;
    ops::Limits limits_{};
    std::vector<uint8_t> batch_bytes_;       // of a batch, on their way to its place
    ops::Batch* batch_[kPlaces] = {};        // scratch: each place's batch, then cos and sin of its rows
    StepShape shape_[kPlaces];               // of them
    Best* best_ = nullptr;                   // scratch: [max_rows, kArgmaxParts]
    float* parts_ = nullptr;                 // scratch: attention's partial results
    Best* candidates_ = nullptr;             // scratch: [max_rows, kTopKParts, kCandidates]
    float* partial_ = nullptr;               // scratch: sums of matmul tiles that several workgroups share,
    uint32_t* arrived_ = nullptr;            // and how many of these have come
};

Rows rows_of(const ops::Acts& acts);
inline Dim grid(int x, int y = 1, int z = 1) { return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)}; }

}  // namespace lucebox::hip
