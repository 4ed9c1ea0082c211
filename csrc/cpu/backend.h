// The CPU backend: cuts each op into tasks for the pool and runs the chosen variant's inner functions.
#pragma once
#include "cpu/kernels.h"
#include "cpu/threads.h"
#include <cstring>

namespace lucebox::cpu {

class CpuBackend final : public ops::Backend {
public:
    CpuBackend(const Kernels& kernels, int threads) : kernels_(kernels), pool_(threads) {}
    ~CpuBackend() override;

    std::string name() const override { return kernels_.name; }
    int threads() const { return pool_.threads(); }

    uint64_t free_bytes() const override;
    void* allocate(uint64_t bytes) override;
    uint64_t packed_bytes(gguf::Type type, uint64_t rows, uint64_t columns) const override { return kernels_.packed_bytes(type, rows, columns); }
    ops::Weight prepare(const gguf::Tensor& tensor, uint8_t* packed) override;
    uint64_t scratch_bytes(const ops::Limits& limits) const override;
    void use_scratch(const ops::Limits& limits, void* scratch) override;

    ops::Batch* use_batch(ops::Batch& batch, ops::Place) override { return &batch; }
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

    void clear(void* at, uint64_t bytes) override { memset(at, 0, bytes); }
    void copy(void* to, const void* from, uint64_t bytes) override { memcpy(to, from, bytes); }
    void download(void* host, const void* from, uint64_t bytes) override { memcpy(host, from, bytes); }
    void upload(void* to, const void* host, uint64_t bytes) override { memcpy(to, host, bytes); }

private:
    // A row of a DeltaNet call: one that is replayed, or one of the batch.
    struct DeltaRow {
        int slot, position;
        int batch_row;         // -1: replayed from the ring
        const float* taps[4];  // raw rows at position - 3 .. position
        const float *alpha, *beta;
    };
    void quantize_row(const ops::Acts& acts, int row);
    void matmul_part(const ops::Matmul& op, int weight, int first, int last);
    void collect_rows(const ops::Deltanet& op);
    void prepare_row(const ops::Deltanet& op, int at, int first_head, int last_head);
    void recur(const ops::Deltanet& op, const ops::Span& span, int first_row, int head, int thread);
    void finish_head(const ops::Deltanet& op, int row, int head, const float* o);
    void keep_row(const ops::Deltanet& op, int row);
    void prepare_head(const ops::Attention& op, int row, int head);
    void store_head(const ops::DraftContext& op, int row, int head);
    void draft_group(const ops::DraftAttention& op, int row, int kv_head);
    void attend_group(const ops::Attention& op, int row, int kv_head);

    const Kernels& kernels_;
    ThreadPool pool_;
    std::vector<std::pair<void*, uint64_t>> memory_;
    std::vector<DeltaRow> delta_rows_;
    float* conv_out_ = nullptr;   // [max_rows + slots * kMaxPending, channels]
    float* gates_ = nullptr;      // [max_rows + slots * kMaxPending, 2, value_heads]: decay, beta
    float* states_ = nullptr;     // [threads, 128, 128]
};

}  // namespace lucebox::cpu
