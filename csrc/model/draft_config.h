// What a DFlash drafter's GGUF file says: sizes and the tensor of each role, checked against each other and against the target it is for.
// Two layouts are read, llama.cpp's ("dflash") and lucebox upstream's ("qwen35-dflash-draft"); of each DFlash2 and version 1.
#pragma once
#include "model/config.h"

namespace lucebox::model {

struct DraftConfig {
    std::string layout;            // the file's general.architecture
    int version;                   // 1: no convolutions and no selector
    int hidden, ff, layers, context_length;
    int heads, kv_heads, head_dim;
    float eps, theta;
    std::vector<int> window;       // [layers], 0 = the whole context
    std::vector<bool> causal;      // [layers]
    int block_size;                // trained rows of a block, the anchor included
    int mask_token;
    std::vector<int> taps;         // target layers whose outputs it sees, from 0, ascending
    int conv_group;                // channels that share a convolution's kernel
    int rank, top_k;               // of the selector; version 1: 0 and 1
    float multiplier, softcap;     // of the logits; 1 and 0 = off
    bool window_given;             // whether the file says what its window is

    int widest_window() const;     // 0 if a layer sees the whole context
};

struct DraftLayerTensors {
    const gguf::Tensor *attn_norm, *ffn_norm, *attn_q_norm, *attn_k_norm;
    const gguf::Tensor *attn_q, *attn_k, *attn_v, *attn_output, *ffn_gate, *ffn_up, *ffn_down;
    const gguf::Tensor *attn_conv_base, *attn_conv_proj, *ffn_conv_base, *ffn_conv_proj;  // version 2
};
struct DraftTensors {
    const gguf::Tensor *fc, *hidden_norm, *output_norm;
    const gguf::Tensor *selector_hidden, *selector_predecessor, *selector_successor;      // version 2
    std::vector<DraftLayerTensors> layer;
};

bool is_drafter(const gguf::File& file);
// Throw Error(kGGUF) that names key or tensor for what is missing or malformed, Error(kUnsupportedModel) for what is another kind of drafter.
DraftConfig read_draft_config(const gguf::File& file);
DraftTensors find_draft_tensors(const gguf::File& file, const DraftConfig& config, int vocab);
// Throws Error(kDrafterMismatch) with both values where the drafter cannot be this target's.
void check_target(const gguf::File& file, const DraftConfig& config, const Config& target);

}  // namespace lucebox::model
