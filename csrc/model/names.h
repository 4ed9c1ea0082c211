// The tensors of a qwen35 layer: name in the file, field, which mixer has it, shape. One table for the loader and for checks.
#pragma once
#include "model/config.h"

namespace lucebox::model {

enum class Mixer { kEither, kAttention, kDeltanet };

struct Role {
    std::string_view name;  // after "blk.N."
    const gguf::Tensor* LayerTensors::*field;
    Mixer mixer;
    bool matrix;            // any type the ops multiply with; the others are f32
    int (*columns)(const Config&);
    int (*rows)(const Config&);
};

namespace sizes {
inline int one(const Config&) { return 1; }
inline int taps(const Config&) { return 4; }
inline int head(const Config&) { return 128; }
inline int hidden(const Config& c) { return c.hidden; }
inline int ff(const Config& c) { return c.ff; }
inline int query_gate(const Config& c) { return 2 * c.heads * c.head_dim; }
inline int query(const Config& c) { return c.heads * c.head_dim; }
inline int kv(const Config& c) { return c.kv_heads * c.head_dim; }
inline int head_dim(const Config& c) { return c.head_dim; }
inline int channels(const Config& c) { return c.channels(); }
inline int values(const Config& c) { return c.value_heads * 128; }
inline int value_heads(const Config& c) { return c.value_heads; }
}  // namespace sizes

inline constexpr Role kRoles[] = {
    {"attn_norm.weight", &LayerTensors::attn_norm, Mixer::kEither, false, sizes::hidden, sizes::one},
    {"post_attention_norm.weight", &LayerTensors::post_attention_norm, Mixer::kEither, false, sizes::hidden, sizes::one},
    {"ffn_gate.weight", &LayerTensors::ffn_gate, Mixer::kEither, true, sizes::hidden, sizes::ff},
    {"ffn_up.weight", &LayerTensors::ffn_up, Mixer::kEither, true, sizes::hidden, sizes::ff},
    {"ffn_down.weight", &LayerTensors::ffn_down, Mixer::kEither, true, sizes::ff, sizes::hidden},
    {"attn_q.weight", &LayerTensors::attn_q, Mixer::kAttention, true, sizes::hidden, sizes::query_gate},
    {"attn_k.weight", &LayerTensors::attn_k, Mixer::kAttention, true, sizes::hidden, sizes::kv},
    {"attn_v.weight", &LayerTensors::attn_v, Mixer::kAttention, true, sizes::hidden, sizes::kv},
    {"attn_output.weight", &LayerTensors::attn_output, Mixer::kAttention, true, sizes::query, sizes::hidden},
    {"attn_q_norm.weight", &LayerTensors::attn_q_norm, Mixer::kAttention, false, sizes::head_dim, sizes::one},
    {"attn_k_norm.weight", &LayerTensors::attn_k_norm, Mixer::kAttention, false, sizes::head_dim, sizes::one},
    {"attn_qkv.weight", &LayerTensors::attn_qkv, Mixer::kDeltanet, true, sizes::hidden, sizes::channels},
    {"attn_gate.weight", &LayerTensors::attn_gate, Mixer::kDeltanet, true, sizes::hidden, sizes::values},
    {"ssm_alpha.weight", &LayerTensors::ssm_alpha, Mixer::kDeltanet, true, sizes::hidden, sizes::value_heads},
    {"ssm_beta.weight", &LayerTensors::ssm_beta, Mixer::kDeltanet, true, sizes::hidden, sizes::value_heads},
    {"ssm_a", &LayerTensors::ssm_a, Mixer::kDeltanet, false, sizes::value_heads, sizes::one},
    {"ssm_dt.bias", &LayerTensors::ssm_dt, Mixer::kDeltanet, false, sizes::value_heads, sizes::one},
    {"ssm_conv1d.weight", &LayerTensors::ssm_conv1d, Mixer::kDeltanet, false, sizes::taps, sizes::channels},
    {"ssm_norm.weight", &LayerTensors::ssm_norm, Mixer::kDeltanet, false, sizes::head, sizes::one},
    {"ssm_out.weight", &LayerTensors::ssm_out, Mixer::kDeltanet, true, sizes::values, sizes::hidden},
};

// What an MTP block must have beside the tensors of an attention layer.
inline constexpr std::string_view kMtpNames[] = {"nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight"};

inline std::string layer_name(int layer, std::string_view name) { return join("blk.", layer, ".", name); }

}  // namespace lucebox::model
