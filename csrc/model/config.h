// What a qwen35 GGUF file says of its model: sizes, and the tensor of each role, checked against each other before anything is allocated.
#pragma once
#include "gguf/reader.h"
#include <string>
#include <vector>

namespace lucebox::model {

enum class Mtp { kNone, kPresent, kAnnouncedButAbsent };

struct Config {
    std::string architecture;
    int vocab, hidden, ff;
    int layers;                    // of the trunk, without MTP blocks
    int context_length;
    int heads, kv_heads, head_dim, rope_dims;
    int key_heads, value_heads;    // of the DeltaNet layers, heads of 128
    float eps, theta;
    std::vector<bool> recurrent;   // [layers]: DeltaNet, or gated attention
    Mtp mtp;

    int channels() const { return (2 * key_heads + value_heads) * 128; }
};

// Tensors of one layer; those of the other kind of mixer are null.
struct LayerTensors {
    const gguf::Tensor *attn_norm, *post_attention_norm, *ffn_gate, *ffn_up, *ffn_down;
    const gguf::Tensor *attn_q, *attn_k, *attn_v, *attn_output, *attn_q_norm, *attn_k_norm;                         // attention
    const gguf::Tensor *attn_qkv, *attn_gate, *ssm_alpha, *ssm_beta, *ssm_a, *ssm_dt, *ssm_conv1d, *ssm_norm, *ssm_out;  // DeltaNet
};
struct Tensors {
    const gguf::Tensor *token_embd, *output_norm, *output;  // output is token_embd when the head is tied
    std::vector<LayerTensors> layer;
};

// Throw Error(kGGUF) that names key or tensor for what is malformed, Error(kUnsupportedModel) for what is another model.
Config read_config(const gguf::File& file);
Tensors find_tensors(const gguf::File& file, const Config& config);

}  // namespace lucebox::model
