#include "model/qwen35.h"
#include "model/loader.h"
#include "model/matmul.h"
#include <algorithm>
#include <cstring>

namespace lucebox::model {

using ops::Weight;

Qwen35::Qwen35(const gguf::File& file, const Config& config, const Shape& shape, ops::Backend& backend, ops::Memory& memory, const Progress& progress)
    : config_(config), shape_(shape), backend_(backend), layers_(static_cast<size_t>(config.layers)) {
    const Tensors tensors = find_tensors(file, config);
    Loader loader(backend, memory, progress);
    loader.table(tensors.token_embd, token_embd_);
    for (int il = 0; il < config.layers; il++) {
        const LayerTensors& t = tensors.layer[static_cast<size_t>(il)];
        Layer& l = layers_[static_cast<size_t>(il)];
        loader.vector(t.attn_norm, l.attn_norm), loader.vector(t.post_attention_norm, l.post_attention_norm);
        if (config.recurrent[static_cast<size_t>(il)]) {
            loader.matrix(t.attn_qkv, l.attn_qkv), loader.matrix(t.attn_gate, l.attn_gate), loader.matrix(t.ssm_alpha, l.ssm_alpha);
            loader.matrix(t.ssm_beta, l.ssm_beta), loader.matrix(t.ssm_out, l.ssm_out);
            loader.vector(t.ssm_a, l.ssm_a), loader.vector(t.ssm_dt, l.ssm_dt), loader.vector(t.ssm_conv1d, l.ssm_conv1d);
            loader.vector(t.ssm_norm, l.ssm_norm);
        } else {
            loader.matrix(t.attn_q, l.attn_q), loader.matrix(t.attn_k, l.attn_k), loader.matrix(t.attn_v, l.attn_v);
            loader.matrix(t.attn_output, l.attn_output);
            loader.vector(t.attn_q_norm, l.attn_q_norm), loader.vector(t.attn_k_norm, l.attn_k_norm);
        }
        loader.matrix(t.ffn_gate, l.ffn_gate), loader.matrix(t.ffn_up, l.ffn_up), loader.matrix(t.ffn_down, l.ffn_down);
    }
    loader.vector(tensors.output_norm, output_norm_);
    loader.matrix(tensors.output, output_);
    take_state(memory);
    take_buffers(memory);
    loader.load();
}

void Qwen35::take_state(ops::Memory& memory) {
    const uint64_t slots = static_cast<uint64_t>(shape_.slots), channels = static_cast<uint64_t>(config_.channels());
    const uint64_t heads = static_cast<uint64_t>(config_.value_heads), linear = static_cast<uint64_t>(std::count(config_.recurrent.begin(), config_.recurrent.end(), true));
    const uint64_t state = slots * heads * ops::kHeadDim * ops::kHeadDim, ring_u = slots * ops::kRing * channels, ring_ab = slots * ops::kRing * 2 * heads;
    const ops::KvLayout layout{shape_.kv, config_.kv_heads, config_.head_dim};
    const uint64_t pages = slots * static_cast<uint64_t>(shape_.pages_a_slot()), kv = pages * layout.page_bytes(), attention = static_cast<uint64_t>(config_.layers) - linear;

    float* states = memory.take<float>("DeltaNet states", linear * state);
    float* rings_u = memory.take<float>("DeltaNet rings, projections", linear * ring_u);
    float* rings_ab = memory.take<float>("DeltaNet rings, gates", linear * ring_ab);
    uint8_t* kv_pages = memory.take<uint8_t>("KV pages", attention * kv);
    table_ = memory.take<int32_t>("KV page table", pages);
    if (memory.dry()) return;
    for (size_t il = 0; il < layers_.size(); il++) {
        Layer& l = layers_[il];
        if (config_.recurrent[il]) {
            l.state = states, l.ring_u = rings_u, l.ring_ab = rings_ab;
            states += state, rings_u += ring_u, rings_ab += ring_ab;
        } else {
            l.pages = kv_pages;
            kv_pages += kv;
        }
    }
}

void Qwen35::take_buffers(ops::Memory& memory) {
    const Config& c = config_;
    const uint64_t rows = static_cast<uint64_t>(shape_.max_rows);
    const int mixer = std::max(c.value_heads * ops::kHeadDim, c.heads * c.head_dim);
    const int wide = std::max({c.channels(), 2 * c.heads * c.head_dim, c.ff}), second = std::max({c.value_heads * ops::kHeadDim, c.kv_heads * c.head_dim, c.ff});
    h_ = memory.take<float>("residual stream", rows * static_cast<uint64_t>(c.hidden));
    normed_ = take_acts(memory, "normed rows", c.hidden, shape_.max_rows);
    mixed_ = take_acts(memory, "mixer rows", mixer, shape_.max_rows);
    gated_ = take_acts(memory, "FFN rows", c.ff, shape_.max_rows);
    in_[0] = memory.take<float>("projections, first", rows * static_cast<uint64_t>(wide));
    in_[1] = memory.take<float>("projections, second", rows * static_cast<uint64_t>(second));
    in_[2] = memory.take<float>("projections, third", rows * static_cast<uint64_t>(std::max(c.value_heads, c.kv_heads * c.head_dim)));
    in_[3] = memory.take<float>("projections, fourth", rows * static_cast<uint64_t>(c.value_heads));
    logits_ = memory.take<float>("logits", std::min<uint64_t>(rows, kHeadRows) * static_cast<uint64_t>(c.vocab));
    best_ = memory.take<int32_t>("argmax", rows);
    const ops::Limits limits{.max_rows = shape_.max_rows,
                             .slots = shape_.slots,
                             .key_heads = c.key_heads,
                             .value_heads = c.value_heads,
                             .heads = c.heads,
                             .head_dim = c.head_dim,
                             .rope_dims = std::max(c.rope_dims, shape_.draft_head_dim),
                             .draft_heads = shape_.draft_heads,
                             .draft_head_dim = shape_.draft_head_dim};
    void* scratch = memory.take("backend's scratch", backend_.scratch_bytes(limits));
    if (!memory.dry()) backend_.use_scratch(limits, scratch);
}

void Qwen35::reset(int slot) {
    const size_t state = static_cast<size_t>(config_.value_heads) * ops::kHeadDim * ops::kHeadDim;
    for (size_t il = 0; il < layers_.size(); il++)
        if (config_.recurrent[il]) backend_.clear(layers_[il].state + static_cast<size_t>(slot) * state, state * sizeof(float));
}

void Qwen35::norm(const float* weight, int count, const int32_t* select) {
    backend_.norm({.x = h_, .weight = weight, .select = select, .count = count, .hidden = config_.hidden, .eps = config_.eps, .y = normed_});
}

void Qwen35::deltanet(const Layer& l) {
    ops::Acts y = mixed_;
    y.columns = config_.value_heads * ops::kHeadDim;
    matmul(backend_, normed_, rows_, {{&l.attn_qkv, in_[0]}, {&l.attn_gate, in_[1]}, {&l.ssm_alpha, in_[2]}, {&l.ssm_beta, in_[3]}});
    backend_.deltanet({.batch = batch_,
                       .key_heads = config_.key_heads,
                       .value_heads = config_.value_heads,
                       .eps = config_.eps,
                       .u = in_[0],
                       .alpha = in_[2],
                       .beta = in_[3],
                       .z = in_[1],
                       .conv = l.ssm_conv1d,
                       .dt = l.ssm_dt,
                       .a = l.ssm_a,
                       .norm = l.ssm_norm,
                       .state = l.state,
                       .ring_u = l.ring_u,
                       .ring_ab = l.ring_ab,
                       .y = y});
    matmul(backend_, y, rows_, {{&l.ssm_out, h_}}, true);
}

void Qwen35::attention(const Layer& l) {
    ops::Acts y = mixed_;
    y.columns = config_.heads * config_.head_dim;
    matmul(backend_, normed_, rows_, {{&l.attn_q, in_[0]}, {&l.attn_k, in_[1]}, {&l.attn_v, in_[2]}});
    backend_.attention({.batch = batch_,
                        .heads = config_.heads,
                        .rope_dims = config_.rope_dims,
                        .layout = {shape_.kv, config_.kv_heads, config_.head_dim},
                        .eps = config_.eps,
                        .qg = in_[0],
                        .k = in_[1],
                        .v = in_[2],
                        .q_norm = l.attn_q_norm,
                        .k_norm = l.attn_k_norm,
                        .pages = l.pages,
                        .table = table_,
                        .max_pages = shape_.pages_a_slot(),
                        .y = y});
    matmul(backend_, y, rows_, {{&l.attn_output, h_}}, true);
}

void Qwen35::ffn(const Layer& l) {
    norm(l.post_attention_norm, rows_, nullptr);
    matmul(backend_, normed_, rows_, {{&l.ffn_gate, in_[0]}, {&l.ffn_up, in_[1]}});
    backend_.swiglu({.gate = in_[0], .up = in_[1], .rows = rows_, .ff = config_.ff, .y = gated_});
    matmul(backend_, gated_, rows_, {{&l.ffn_down, h_}}, true);
}

void Qwen35::layers(const Look& look) {
    backend_.embed({.batch = batch_, .weight = token_embd_, .h = h_});
    for (int il = 0; il < config_.layers; il++) {
        const Layer& l = layers_[static_cast<size_t>(il)];
        norm(l.attn_norm, rows_, nullptr);
        if (config_.recurrent[static_cast<size_t>(il)]) deltanet(l);
        else attention(l);
        ffn(l);
        for (size_t t = 0; t < taps_.layers.size(); t++)
            if (taps_.layers[t] == il)
                backend_.tap({.h = h_,
                              .rows = rows_,
                              .hidden = config_.hidden,
                              .out = taps_.out,
                              .columns = static_cast<int>(taps_.layers.size()) * config_.hidden,
                              .offset = static_cast<int>(t) * config_.hidden,
                              .mended = taps_.mended});
        if (look) look(il, h_);
    }
}

void Qwen35::forward(const Look& look) {
    if (look) layers(look);  // it reads between layers: nothing is captured
    else backend_.run({kTargetForward}, {batch_}, [this] { layers({}); });
}

void Qwen35::head(int first, int count) {
    const int rows = backend_.launch_rows(count);
    backend_.run({kTargetHead, first, rows}, {batch_}, [this, first, rows] {
        norm(output_norm_, rows, batch_->want + first);
        matmul(backend_, normed_, rows, {{&output_, logits_}});
        backend_.argmax({.logits = logits_, .rows = rows, .vocab = config_.vocab, .id = best_ + first});
    });
}

void Qwen35::argmax() {
    const int all = backend_.launch_rows(wanted_);
    for (int first = 0; first < all; first += kHeadRows) head(first, std::min(kHeadRows, all - first));
}

}  // namespace lucebox::model
