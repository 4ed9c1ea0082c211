#include "model/drafter.h"
#include "model/loader.h"
#include "model/matmul.h"
#include <algorithm>

namespace lucebox::model {

Drafter::Drafter(const gguf::File& file, const DraftConfig& config, const Shape& shape, Qwen35& target, int vocab, ops::Backend& backend, ops::Memory& memory,
                 const Progress& progress)
    : config_(config), shape_(shape), target_(target), vocab_(vocab), backend_(backend), layers_(static_cast<size_t>(config.layers)) {
    const DraftTensors tensors = find_draft_tensors(file, config, vocab);
    Loader loader(backend, memory, progress, "drafter's ");
    loader.matrix(tensors.fc, fc_);
    loader.vector(tensors.hidden_norm, hidden_norm_), loader.vector(tensors.output_norm, output_norm_);
    if (config.version == 2) {
        loader.matrix(tensors.selector_hidden, selector_hidden_);
        loader.table(tensors.selector_predecessor, selector_predecessor_), loader.table(tensors.selector_successor, selector_successor_);
    }
    for (size_t i = 0; i < layers_.size(); i++) {
        const DraftLayerTensors& t = tensors.layer[i];
        Layer& l = layers_[i];
        l.window = config.window[i], l.causal = config.causal[i];
        loader.vector(t.attn_norm, l.attn_norm), loader.vector(t.ffn_norm, l.ffn_norm);
        loader.vector(t.attn_q_norm, l.attn_q_norm), loader.vector(t.attn_k_norm, l.attn_k_norm);
        loader.matrix(t.attn_q, l.attn_q), loader.matrix(t.attn_k, l.attn_k), loader.matrix(t.attn_v, l.attn_v), loader.matrix(t.attn_output, l.attn_output);
        loader.matrix(t.ffn_gate, l.ffn_gate), loader.matrix(t.ffn_up, l.ffn_up), loader.matrix(t.ffn_down, l.ffn_down);
        if (config.version == 1) continue;
        loader.vector(t.attn_conv_base, l.attn_conv_base), loader.vector(t.ffn_conv_base, l.ffn_conv_base);
        loader.matrix(t.attn_conv_proj, l.attn_conv_proj), loader.matrix(t.ffn_conv_proj, l.ffn_conv_proj);
    }
    take_rings(memory);
    take_buffers(memory);
    loader.load();
    target_.tap(config_.taps, taps_, mended_);
}

// A ring is a page table that repeats its pages: room for a window and the block behind it. A layer without a window has a page for every token.
void Drafter::take_rings(ops::Memory& memory) {
    const int all = shape_.pages_a_slot(), slots = shape_.slots;
    const ops::KvLayout layout{ops::KvForm::F16, config_.kv_heads, config_.head_dim};
    for (size_t i = 0; i < layers_.size(); i++) {
        Layer& l = layers_[i];
        const int pages = l.window ? std::min(all, (l.window + 2 * ops::kPage - 1) / ops::kPage + 1) : all;
        l.pages = memory.take<uint8_t>(join("drafter's ring, layer ", i), static_cast<uint64_t>(slots) * static_cast<uint64_t>(pages) * layout.page_bytes());
        int32_t* table = memory.take<int32_t>(join("drafter's page table, layer ", i), static_cast<uint64_t>(slots) * static_cast<uint64_t>(all));
        l.table = table;
        if (memory.dry()) continue;
        std::vector<int32_t> entries;
        for (int slot = 0; slot < slots; slot++)
            for (int page = 0; page < all; page++) entries.push_back(slot * pages + page % pages);
        backend_.upload(table, entries.data(), entries.size() * sizeof(int32_t));
    }
}

void Drafter::take_buffers(ops::Memory& memory) {
    const DraftConfig& c = config_;
    const auto rows = static_cast<uint64_t>(shape_.max_rows);
    const auto floats = [&](const char* name, int columns) { return memory.take<float>(join("drafter's ", name), rows * static_cast<uint64_t>(columns)); };
    const int taps = static_cast<int>(c.taps.size()) * c.hidden;
    taps_ = floats("taps", taps);
    mended_ = memory.take<int32_t>("drafter's mended taps", rows);
    h_ = floats("residual stream", c.hidden), part_ = floats("sublayer", c.hidden);
    if (c.version == 2) delta_ = floats("convolution kernels", 4 * c.hidden / c.conv_group), g_ = floats("selector rows", c.rank);
    q_ = floats("queries", c.heads * c.head_dim), k_ = floats("keys", c.kv_heads * c.head_dim), v_ = floats("values", c.kv_heads * c.head_dim);
    gate_ = floats("gates", c.ff), up_ = floats("FFN inputs", c.ff);
    tapped_ = take_acts(memory, "drafter's tapped rows", taps, shape_.max_rows);
    normed_ = take_acts(memory, "drafter's normed rows", c.hidden, shape_.max_rows);
    if (c.version == 2) conv_ = take_acts(memory, "drafter's convolved rows", c.hidden, shape_.max_rows);
    mixed_ = take_acts(memory, "drafter's attention rows", c.heads * c.head_dim, shape_.max_rows);
    gated_ = take_acts(memory, "drafter's FFN rows", c.ff, shape_.max_rows);
    id_ = memory.take<int32_t>("drafter's candidates", rows * ops::kCandidates);
    value_ = floats("candidates' logits", ops::kCandidates);
    edge_ = floats("selector's edges", ops::kCandidates * ops::kCandidates);
    work_ = memory.take<float>("drafter's selector work", ops::lattice_work(shape_.max_rows, c.rank));
    path_ = memory.take<int32_t>("drafter's path", rows);
}

void Drafter::norm(const float* x, const float* weight, int count, const int32_t* select) {
    backend_.norm({.x = x, .weight = weight, .select = select, .count = count, .hidden = config_.hidden, .eps = config_.eps, .y = normed_});
}

// What k_ and v_ hold, on its way into a layer's ring.
ops::DraftContext Drafter::keys_and_values(const Layer& l, const InUse& rows) const {
    return {.batch = rows.batch,
            .rows = rows.rows,
            .layout = {ops::KvForm::F16, config_.kv_heads, config_.head_dim},
            .eps = config_.eps,
            .k = k_,
            .v = v_,
            .k_norm = l.attn_k_norm,
            .pages = l.pages,
            .table = l.table,
            .max_pages = shape_.pages_a_slot()};
}

void Drafter::context() {
    const int rows = context_.rows;
    backend_.run({kDraftContext}, {context_.batch}, [this, rows] {
        backend_.quantize({.x = taps_, .select = context_.batch->want, .count = rows, .columns = tapped_.columns, .y = tapped_});
        matmul(backend_, tapped_, rows, {{&fc_, part_}});
        norm(part_, hidden_norm_, rows, nullptr);
        for (const Layer& l : layers_) {
            matmul(backend_, normed_, rows, {{&l.attn_k, k_}, {&l.attn_v, v_}});
            backend_.draft_context(keys_and_values(l, context_));
        }
    });
}

const ops::Acts& Drafter::convolved(const ops::Weight& kernels, const float* base) {
    if (config_.version == 1) return normed_;
    matmul(backend_, normed_, blocks_.rows, {{&kernels, delta_}});
    backend_.draft_conv({.batch = blocks_.batch,
                         .rows = blocks_.rows,
                         .hidden = config_.hidden,
                         .group = config_.conv_group,
                         .side = 0,
                         .x = normed_.x,
                         .delta = delta_,
                         .base = base,
                         .h = nullptr,
                         .y = conv_});
    return conv_;
}

void Drafter::add_convolved(const float* y, const float* base) {
    backend_.draft_conv({.batch = blocks_.batch,
                         .rows = blocks_.rows,
                         .hidden = config_.hidden,
                         .group = config_.conv_group,
                         .side = 1,
                         .x = y,
                         .delta = delta_,
                         .base = base,
                         .h = h_,
                         .y = {}});
}

void Drafter::attention(const Layer& l) {
    norm(h_, l.attn_norm, blocks_.rows, nullptr);
    matmul(backend_, convolved(l.attn_conv_proj, l.attn_conv_base), blocks_.rows, {{&l.attn_q, q_}, {&l.attn_k, k_}, {&l.attn_v, v_}});
    backend_.draft_attention({.block = keys_and_values(l, blocks_),
                              .heads = config_.heads,
                              .window = l.window,
                              .causal = l.causal,
                              .q = q_,
                              .q_norm = l.attn_q_norm,
                              .y = mixed_});
    if (config_.version == 1) return matmul(backend_, mixed_, blocks_.rows, {{&l.attn_output, h_}}, true);
    matmul(backend_, mixed_, blocks_.rows, {{&l.attn_output, part_}});
    add_convolved(part_, l.attn_conv_base);
}

void Drafter::ffn(const Layer& l) {
    norm(h_, l.ffn_norm, blocks_.rows, nullptr);
    matmul(backend_, convolved(l.ffn_conv_proj, l.ffn_conv_base), blocks_.rows, {{&l.ffn_gate, gate_}, {&l.ffn_up, up_}});
    backend_.swiglu({.gate = gate_, .up = up_, .rows = blocks_.rows, .ff = config_.ff, .y = gated_});
    if (config_.version == 1) return matmul(backend_, gated_, blocks_.rows, {{&l.ffn_down, h_}}, true);
    matmul(backend_, gated_, blocks_.rows, {{&l.ffn_down, part_}});
    add_convolved(part_, l.ffn_conv_base);
}

// Logits of the wanted rows in parts of kHeadRows, of which only the candidates are kept.
void Drafter::head(int wanted) {
    for (int at = 0; at < wanted; at += kHeadRows) {
        const int rows = std::min(kHeadRows, wanted - at);
        const auto first = static_cast<size_t>(at);
        norm(h_, output_norm_, rows, blocks_.batch->want + at);
        matmul(backend_, normed_, rows, {{&target_.output(), target_.logits()}});
        if (config_.version == 2) matmul(backend_, normed_, rows, {{&selector_hidden_, g_ + first * static_cast<size_t>(config_.rank)}});
        backend_.top_k({.logits = target_.logits(),
                        .rows = rows,
                        .vocab = vocab_,
                        .k = config_.top_k,
                        .multiplier = config_.multiplier,
                        .softcap = config_.softcap,
                        .id = id_ + first * ops::kCandidates,
                        .value = value_ + first * ops::kCandidates});
    }
}

void Drafter::draft() {
    const int wanted = backend_.launch_rows(blocks_.wanted);
    backend_.run({kDraftBlocks, wanted}, {blocks_.batch}, [this, wanted] {
        backend_.embed({.batch = blocks_.batch, .weight = target_.token_embd(), .h = h_});
        for (const Layer& l : layers_) attention(l), ffn(l);
        head(wanted);
        backend_.lattice({.batch = blocks_.batch,
                          .count = wanted,
                          .rank = config_.rank,
                          .k = config_.top_k,
                          .g = g_,
                          .id = id_,
                          .value = value_,
                          .predecessor = selector_predecessor_,
                          .successor = selector_successor_,
                          .edge = edge_,
                          .work = work_});
    });
}

void Drafter::walk(ops::Batch* verify) {
    backend_.walk({.draft = blocks_.batch, .verify = verify, .k = config_.top_k, .id = id_, .edge = edge_, .path = path_});
}

}  // namespace lucebox::model
