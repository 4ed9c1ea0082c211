// The DFlash drafter: weights, ring of projected context and the block's forward pass, written once over the ops. It shares the target's embedding and head.
#pragma once
#include "model/draft_config.h"
#include "model/qwen35.h"

namespace lucebox::model {

class Drafter {
public:
    using Progress = Qwen35::Progress;

    // With dry memory nothing is allocated or read but the header. `target` outlives the drafter.
    Drafter(const gguf::File& file, const DraftConfig& config, const Shape& shape, Qwen35& target, int vocab, ops::Backend& backend, ops::Memory& memory,
            const Progress& progress);

    // The batch that context() takes: row i of it is row want[i] of the target's last forward (rows = wanted), with its slot, position and angles.
    void use_context(ops::Batch& batch) { context_ = in_use(batch, ops::Place::kContext); }
    const ops::Batch* blocks() const { return blocks_.batch; }          // in use, backend memory
    const ops::Batch* context_rows() const { return context_.batch; }
    // Takes these rows into the ring.
    void context();
    // The batch that draft() takes: row 0 of a span is the anchor, the others the mask token; want: the other rows of all spans, ascending.
    void use_blocks(ops::Batch& batch) { blocks_ = in_use(batch, ops::Place::kDraft); }
    // Runs the blocks.
    void draft();
    // The best edges' path through the candidates of the last draft, and into the rows behind the first of each span of `verify` (ops/walk.h).
    void walk(ops::Batch* verify);

    // Of the last draft, in the order of want, backend memory.
    const int32_t* candidates() const { return id_; }  // [wanted, 16], the first top_k of each; -1: the row holds a NaN
    const float* edges() const { return edge_; }       // [wanted, 16, 16] (ops/lattice.h)
    const int32_t* path() const { return path_; }      // [wanted], of the last walk
    const int32_t* mended() const { return mended_; }  // [max_rows] values of the target's layers that were no numbers or too large (ops/tap.h)

private:
    struct Layer {
        const float *attn_norm, *ffn_norm, *attn_q_norm, *attn_k_norm, *attn_conv_base, *ffn_conv_base;
        ops::Weight attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down, attn_conv_proj, ffn_conv_proj;
        uint8_t* pages;
        const int32_t* table;
        int window;
        bool causal;
    };
    struct InUse {
        const ops::Batch* batch = nullptr;  // in the backend's memory
        int rows = 0, wanted = 0;           // rows: that ops are given
    };
    InUse in_use(ops::Batch& batch, ops::Place place) { return {backend_.use_batch(batch, place), backend_.launch_rows(batch.rows), batch.wanted}; }
    void take_rings(ops::Memory& memory);
    void take_buffers(ops::Memory& memory);
    void norm(const float* x, const float* weight, int count, const int32_t* select);
    // x through the first convolution of a sublayer; version 1: as it is.
    const ops::Acts& convolved(const ops::Weight& kernels, const float* base);
    // h += y [rows, hidden] through the second one.
    void add_convolved(const float* y, const float* base);
    ops::DraftContext keys_and_values(const Layer& layer, const InUse& rows) const;
    void attention(const Layer& layer);
    void ffn(const Layer& layer);
    void head(int wanted);

    DraftConfig config_;
    Shape shape_;
    Qwen35& target_;
    int vocab_;
    ops::Backend& backend_;
    std::vector<Layer> layers_;
    ops::Weight fc_, selector_hidden_, selector_predecessor_{}, selector_successor_{};
    const float *hidden_norm_ = nullptr, *output_norm_ = nullptr;
    InUse blocks_, context_;
    float *taps_ = nullptr;                    // [max_rows, taps * hidden] of the target's last forward
    int32_t* mended_ = nullptr;
    float *h_ = nullptr, *part_ = nullptr;     // [rows, hidden]: residual stream; a sublayer's output
    float *delta_ = nullptr, *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *g_ = nullptr;
    ops::Acts tapped_{}, normed_{}, conv_{}, mixed_{}, gated_{};
    int32_t *id_ = nullptr, *path_ = nullptr;
    float *value_ = nullptr, *edge_ = nullptr, *work_ = nullptr;
};

}  // namespace lucebox::model
