// The qwen35 target: weights, state and the forward pass over the rows of a batch, written once over the ops.
#pragma once
#include "model/config.h"
#include "ops/memory.h"
#include <functional>

namespace lucebox::model {

struct Shape {
    int max_ctx;    // tokens a slot
    int slots;      // 1..8
    int max_rows;   // rows a call, 1..128
    ops::KvForm kv;
    int draft_heads = 0, draft_head_dim = 0;  // of the drafter's attention; 0: there is none

    int pages_a_slot() const { return (max_ctx + ops::kPage - 1) / ops::kPage; }
};

// What a backend captures apart from each other (ops/backend.h).
enum Part { kTargetForward, kTargetHead, kDraftContext, kDraftBlocks, kWholeStep };

inline constexpr int kHeadRows = 32;  // rows of logits a head call computes

class Qwen35 {
public:
    using Progress = std::function<void(double)>;          // 0..1, while weights are prepared
    using Look = std::function<void(int layer, const float* h)>;  // h [rows, hidden] after a layer, backend memory

    // With dry memory nothing is allocated or read but the header: only the plan is made.
    Qwen35(const gguf::File& file, const Config& config, const Shape& shape, ops::Backend& backend, ops::Memory& memory, const Progress& progress);

    // The batch of the calls that follow. Positions, slots and tokens were checked by the caller.
    ops::Batch* use(ops::Batch& batch) { return wanted_ = batch.wanted, rows_ = backend_.launch_rows(batch.rows), batch_ = backend_.use_batch(batch); }
    // Runs the batch through all layers; its states and KV go on.
    void forward(const Look& look = {});
    // Argmax of rows want[first .. first + count - 1] of the last forward, and their logits; at most kHeadRows.
    void head(int first, int count);
    // Argmax of all that the batch wants; logits of some.
    void argmax();
    // Forgets a slot's DeltaNet state.
    void reset(int slot);

    // From now on every forward leaves the outputs of these layers, side by side, in out [max_rows, layers * hidden] (ops/tap.h).
    void tap(const std::vector<int>& layers, float* out, int32_t* mended) { taps_ = {layers, out, mended}; }

    // What a drafter shares; it overwrites the logits.
    const ops::Weight& token_embd() const { return token_embd_; }
    const ops::Weight& output() const { return output_; }
    float* logits() { return logits_; }
    const float* logits() const { return logits_; }        // [count, vocab] of the last head, backend memory
    const int32_t* best() const { return best_; }          // [wanted]; -1: the row holds a NaN
    int32_t* page_table() const { return table_; }         // [slots, pages_a_slot], backend memory

private:
    struct Layer {
        const float *attn_norm, *post_attention_norm;
        ops::Weight ffn_gate, ffn_up, ffn_down;
        // attention
        ops::Weight attn_q, attn_k, attn_v, attn_output;
        const float *attn_q_norm, *attn_k_norm;
        uint8_t* pages;
        // DeltaNet
        ops::Weight attn_qkv, attn_gate, ssm_alpha, ssm_beta, ssm_out;
        const float *ssm_a, *ssm_dt, *ssm_conv1d, *ssm_norm;
        float *state, *ring_u, *ring_ab;
    };

    void take_buffers(ops::Memory& memory);
    void take_state(ops::Memory& memory);
    void norm(const float* weight, int count, const int32_t* select);
    void layers(const Look& look);
    void deltanet(const Layer& layer);
    void attention(const Layer& layer);
    void ffn(const Layer& layer);

    Config config_;
    Shape shape_;
    ops::Backend& backend_;
    std::vector<Layer> layers_;
    ops::Batch* batch_ = nullptr;             // in use, in the backend's memory
    int rows_ = 0, wanted_ = 0;               // rows: that its ops are given
    struct Taps {
        std::vector<int> layers;
        float* out;
        int32_t* mended;
    } taps_{};
    ops::Weight token_embd_, output_;
    const float* output_norm_ = nullptr;
    int32_t* table_ = nullptr;
    float *h_ = nullptr, *logits_ = nullptr;
    int32_t* best_ = nullptr;
    ops::Acts normed_, mixed_, gated_;        // [rows, hidden], [rows, mixer width], [rows, ff]
    float *in_[4] = {};                       // outputs of the projections: qkv z alpha beta, or q k v; gate and up reuse the first two
};

}  // namespace lucebox::model
