#include "model/draft_config.h"
#include "model/finder.h"
#include "model/keys.h"
#include "model/names.h"
#include <algorithm>

namespace lucebox::model {

namespace {

using gguf::File;
using gguf::Tensor;
using gguf::ValueType;

constexpr int kMostTaps = 16, kMostRank = 1024, kMostBlock = 16, kTrainedWindow = 2048, kMostWindow = 1 << 24;
constexpr std::string_view kLlama = "dflash", kOwn[] = {"qwen35-dflash-draft", "dflash-draft", "gemma4-dflash-draft"};

bool own_layout(const std::string& architecture) { return std::ranges::find(kOwn, architecture) != std::end(kOwn); }

// Names that differ between the layouts.
struct Names {
    explicit Names(const std::string& architecture) : own(own_layout(architecture)) {}
    const bool own;

    const char* block_size() const { return own ? "dflash.block_size" : "block_size"; }
    const char* taps() const { return own ? "dflash.target_layer_ids" : "target_layers"; }
    const char* causal() const { return own ? "dflash.causal" : "attention.causal"; }
    const char* conv_kernel() const { return own ? "dflash.conv_kernel_size" : "conv_kernel_size"; }
    const char* conv_group() const { return own ? "dflash.conv_group_size" : "conv_group_size"; }
    const char* rank() const { return own ? "dflash.selector_rank" : "selector_rank"; }
    const char* top_k() const { return own ? "dflash.selector_top_k" : "selector_top_k"; }
    const char* multiplier() const { return own ? "dflash.output_multiplier" : "logit_scale"; }
    const char* softcap() const { return own ? "dflash.final_logit_softcapping" : "final_logit_softcapping"; }
    std::string selector(const char* part) const { return join(own ? "dflash.selector." : "selector_", part, ".weight"); }
};

std::vector<int> read_taps(const File& file, const Keys& keys, const Names& names) {
    const gguf::Array* array = file.find_array(keys.name(names.taps()), {ValueType::I32, ValueType::U32, ValueType::I64, ValueType::U64});
    if (!array) file.fail(keys.name(names.taps()), 0, "is not in the file; without it the layers that the drafter was trained on are unknown");
    std::vector<int> taps;
    const auto add = [&](auto id) {
        const auto layer = static_cast<int64_t>(id) - (names.own ? 0 : 1);  // llama.cpp's layout names the layer whose input it is
        if (layer < 0 || layer >= kMostLayers) keys.fail(names.taps(), join("names layer ", static_cast<int64_t>(id)));
        taps.push_back(static_cast<int>(layer));
    };
    if (const auto* ids = std::get_if<std::vector<int64_t>>(&array->values)) std::ranges::for_each(*ids, add);
    if (const auto* ids = std::get_if<std::vector<uint64_t>>(&array->values)) std::ranges::for_each(*ids, add);
    if (taps.empty() || taps.size() > kMostTaps) keys.fail(names.taps(), join("has ", taps.size(), " layers; 1 to ", kMostTaps, " are supported"));
    if (!std::ranges::is_sorted(taps) || std::ranges::adjacent_find(taps) != taps.end()) keys.fail(names.taps(), "is not in ascending order");
    return taps;
}

// Version 2 was trained with a window of 2,048 everywhere, version 1 of Qwen3.5 without any: that is what a file without the keys gets.
void read_windows(const File& file, const Keys& keys, const Names& names, DraftConfig& c) {
    const auto layers = static_cast<size_t>(c.layers);
    const bool given = keys.has("attention.sliding_window");
    c.window_given = given;
    const int window = given ? static_cast<int>(file.integer(keys.name("attention.sliding_window"), 0, kMostWindow)) : c.version == 2 ? kTrainedWindow : 0;
    const gguf::Array* pattern = file.find_array(keys.name("attention.sliding_window_pattern"), {ValueType::Bool});
    if (pattern && pattern->count() != layers) keys.fail("attention.sliding_window_pattern", join("has ", pattern->count(), " flags; the drafter has ", c.layers, " layers"));
    const std::optional<bool> causal = file.find_flag(keys.name(names.causal()));
    for (size_t i = 0; i < layers; i++) {
        const bool slides = window > 0 && (!pattern || std::get<std::vector<bool>>(pattern->values)[i]);
        c.window.push_back(slides ? window : 0);
        c.causal.push_back(causal.value_or(slides));
    }
}

void read_version_2(const File& file, const Keys& keys, const Names& names, DraftConfig& c) {
    if (const int taps = keys.integer(names.conv_kernel()); taps != 2) unsupported(file, join(keys.name(names.conv_kernel()), " is ", taps, "; only 2 is supported"));
    c.conv_group = keys.integer(names.conv_group(), c.hidden);
    if (c.hidden % c.conv_group != 0) keys.fail(names.conv_group(), join("is ", c.conv_group, "; it has to divide the ", c.hidden, " channels"));
    c.rank = keys.bounded(names.rank(), kMostRank, 1);
    c.top_k = keys.bounded(names.top_k(), 16, 1);
}

float number_or(const File& file, const Keys& keys, const char* key, float otherwise) {
    const auto x = static_cast<float>(file.find_number(keys.name(key)).value_or(static_cast<double>(otherwise)));
    if (!(std::isfinite(x) && x >= 0)) keys.fail(key, join("is ", x, "; a finite number is wanted"));
    return x;
}

// What other drafters under the same names have.
void check_extras(const File& file) {
    for (const auto& [name, what] : {std::pair{"d2t", "a table from its own vocabulary to the target's (d2t)"}, {"markov_w1.weight", "a Markov head (DSpark)"},
                                     {"token_embd.weight", "its own embedding"}, {"output.weight", "its own output head"}})
        if (file.tensor(name)) unsupported(file, join("is a drafter with ", what, "; supported are DFlash2 and DFlash drafters that share the target's embedding and head"));
}

[[noreturn]] void mismatch(const File& file, const std::string& text) {
    throw Error(Kind::kDrafterMismatch, join(file.path(), ": ", text, "; use the drafter that was made for this target"));
}

}  // namespace

bool is_drafter(const File& file) {
    const auto architecture = file.find_text("general.architecture");
    return architecture && (*architecture == kLlama || own_layout(*architecture));
}

int DraftConfig::widest_window() const { return std::ranges::find(window, 0) != window.end() ? 0 : std::ranges::max(window); }

DraftConfig read_draft_config(const File& file) {
    DraftConfig c{};
    c.layout = file.text("general.architecture");
    if (!is_drafter(file)) unsupported(file, join("is a model of architecture \"", c.layout, "\", and a drafter of architecture \"dflash\" or \"qwen35-dflash-draft\" is wanted"));
    check_extras(file);
    const Keys keys(file, c.layout);
    const Names names(c.layout);
    c.hidden = keys.bounded("embedding_length", kMostHidden, 32);
    c.ff = keys.bounded("feed_forward_length", kMostColumns, 32);
    c.layers = keys.integer("block_count", kMostTaps);
    c.context_length = keys.integer("context_length");
    c.heads = keys.integer("attention.head_count", kMostHeads);
    c.kv_heads = keys.integer("attention.head_count_kv", kMostHeads);
    if (c.heads % c.kv_heads != 0) keys.fail("attention.head_count", join("is ", c.heads, ", no multiple of the ", c.kv_heads, " of attention.head_count_kv"));
    c.head_dim = keys.bounded("attention.key_length", kMostHeadDim, 32);
    keys.exactly("attention.value_length", c.head_dim);
    c.eps = keys.number("attention.layer_norm_rms_epsilon");
    c.theta = keys.number("rope.freq_base");
    c.block_size = keys.bounded(names.block_size(), kMostBlock, 1);
    if (c.block_size < 2) keys.fail(names.block_size(), "is 1; a block holds the anchor and at least one token");
    const std::string mask = names.own ? keys.name("dflash.mask_token_id") : "tokenizer.ggml.mask_token_id";
    c.mask_token = static_cast<int>(file.integer(mask, 0, INT32_MAX));
    c.taps = read_taps(file, keys, names);
    c.version = keys.integer_or(names.top_k(), 0, 0) > 0 || file.tensor(names.selector("hidden")) ? 2 : 1;
    c.top_k = 1;
    if (c.version == 2) read_version_2(file, keys, names, c);
    read_windows(file, keys, names, c);
    c.multiplier = number_or(file, keys, names.multiplier(), 1);
    c.softcap = number_or(file, keys, names.softcap(), 0);
    if (c.multiplier == 0) keys.fail(names.multiplier(), "is 0");
    return c;
}

DraftTensors find_draft_tensors(const File& file, const DraftConfig& c, int vocab) {
    const Names names(c.layout);
    Finder finder(file);
    // Upstream writes "dflash.fc.weight" or "dflash_fc.weight".
    const auto own_or = [&](const char* own, const char* other) {
        if (!names.own) return std::string(other);
        return file.tensor(join("dflash_", own)) ? join("dflash_", own) : join("dflash.", own);
    };
    const int inputs = static_cast<int>(c.taps.size()) * c.hidden, query = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    DraftTensors out{};
    out.fc = finder.find(own_or("fc.weight", "fc.weight"), true, inputs, c.hidden);
    out.hidden_norm = finder.find(own_or("hidden_norm.weight", "enc.output_norm.weight"), false, c.hidden, 1);
    out.output_norm = finder.find("output_norm.weight", false, c.hidden, 1);
    if (c.version == 2) {
        out.selector_hidden = finder.find(names.selector("hidden"), true, c.hidden, c.rank);
        out.selector_predecessor = finder.find(names.selector("predecessor"), true, c.rank, vocab);
        out.selector_successor = finder.find(names.selector("successor"), true, c.rank, vocab);
    }
    for (int i = 0; i < c.layers; i++) {
        const auto find = [&](const char* name, bool matrix, int columns, int rows) { return finder.find(layer_name(i, name), matrix, columns, rows); };
        DraftLayerTensors& l = out.layer.emplace_back();
        l.attn_norm = find("attn_norm.weight", false, c.hidden, 1), l.ffn_norm = find("ffn_norm.weight", false, c.hidden, 1);
        l.attn_q_norm = find("attn_q_norm.weight", false, c.head_dim, 1), l.attn_k_norm = find("attn_k_norm.weight", false, c.head_dim, 1);
        l.attn_q = find("attn_q.weight", true, c.hidden, query), l.attn_k = find("attn_k.weight", true, c.hidden, kv);
        l.attn_v = find("attn_v.weight", true, c.hidden, kv), l.attn_output = find("attn_output.weight", true, query, c.hidden);
        l.ffn_gate = find("ffn_gate.weight", true, c.hidden, c.ff), l.ffn_up = find("ffn_up.weight", true, c.hidden, c.ff);
        l.ffn_down = find("ffn_down.weight", true, c.ff, c.hidden);
        if (c.version == 1) continue;
        const std::vector<uint64_t> base{static_cast<uint64_t>(c.hidden), 2, 2};
        const int kernels = 4 * c.hidden / c.conv_group;
        l.attn_conv_base = finder.find(layer_name(i, "attn_conv_base"), false, base), l.ffn_conv_base = finder.find(layer_name(i, "ffn_conv_base"), false, base);
        l.attn_conv_proj = find("attn_conv_proj.weight", true, c.hidden, kernels), l.ffn_conv_proj = find("ffn_conv_proj.weight", true, c.hidden, kernels);
    }
    for (const Tensor& tensor : file.tensors())
        if (!finder.claimed(tensor.name)) unsupported(file, join("tensor ", tensor.name, " is no part of a DFlash drafter as this build knows it"));
    return out;
}

void check_target(const File& file, const DraftConfig& c, const Config& target) {
    if (c.hidden != target.hidden) mismatch(file, join("the drafter is for a target of hidden size ", c.hidden, ", and this target has ", target.hidden));
    if (c.taps.back() >= target.layers) mismatch(file, join("the drafter sees the output of layer ", c.taps.back(), ", and this target has layers 0 to ", target.layers - 1));
    if (c.mask_token >= target.vocab) mismatch(file, join("the drafter's mask token is ", c.mask_token, ", and this target has ids 0 to ", target.vocab - 1));
    const gguf::Array* tokens = file.find_array("tokenizer.ggml.tokens", {ValueType::String});
    int64_t vocab = tokens ? static_cast<int64_t>(tokens->count()) : target.vocab;
    vocab = file.find_integer(join(c.layout, ".vocab_size"), 1, INT32_MAX).value_or(vocab);
    if (const Tensor* rows = file.tensor(Names(c.layout).selector("successor"))) vocab = static_cast<int64_t>(rows->rows());
    if (vocab != target.vocab) mismatch(file, join("the drafter has a vocabulary of ", vocab, ", and this target of ", target.vocab));
    if (c.top_k > target.vocab) mismatch(file, join("the drafter's selector takes ", c.top_k, " candidates, and this target has ", target.vocab, " tokens"));
}

}  // namespace lucebox::model
