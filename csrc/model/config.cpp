#include "model/config.h"
#include "model/finder.h"
#include "model/keys.h"
#include "model/names.h"
#include <algorithm>

namespace lucebox::model {
namespace {

using gguf::File;
using gguf::Tensor;
using gguf::ValueType;

void check_architecture(const File& file) {
    const std::string found = file.text("general.architecture");
    if (found == "qwen35") return;
    const std::string what = found == "qwen35moe" ? " (a mixture of experts)" : found == "dflash" ? " (a drafter, which goes with a target model)" : "";
    unsupported(file, join("is a model of architecture \"", found, "\"", what, "; supported is \"qwen35\": the dense Qwen3.5, 3.6 and 3.8 models"));
}

void read_attention(const File& file, const Keys& keys, Config& c) {
    c.heads = keys.integer("attention.head_count", kMostHeads);
    c.kv_heads = keys.integer("attention.head_count_kv", kMostHeads);
    if (c.heads % c.kv_heads != 0) keys.fail("attention.head_count", join("is ", c.heads, ", no multiple of the ", c.kv_heads, " of attention.head_count_kv"));
    c.head_dim = keys.bounded("attention.key_length", kMostHeadDim, 32);
    keys.exactly("attention.value_length", c.head_dim);
    c.rope_dims = keys.bounded("rope.dimension_count", c.head_dim, 2);
    c.theta = keys.number("rope.freq_base");
    const std::string sections = keys.name("rope.dimension_sections"), scaling = keys.name("rope.scaling.type"), factor = keys.name("rope.scaling.factor");
    const gguf::Array* array = file.find_array(sections, {ValueType::I32, ValueType::U32, ValueType::I64, ValueType::U64});
    if (!array || array->count() != 4) keys.fail("rope.dimension_sections", join("has ", array ? array->count() : 0, " numbers; 4 are wanted"));
    const std::string type = file.find_text(scaling).value_or("none");
    if (type != "none") unsupported(file, join(scaling, " is \"", type, "\"; only files without RoPE scaling are supported"));
    if (const double x = file.find_number(factor).value_or(1); x != 1 && x != 0)
        unsupported(file, join(factor, " is ", x, "; only files without RoPE scaling are supported"));
}

void read_deltanet(const Keys& keys, Config& c) {
    keys.exactly("ssm.conv_kernel", 4);
    keys.exactly("ssm.state_size", 128);
    c.key_heads = keys.integer("ssm.group_count", kMostHeads);
    c.value_heads = keys.integer("ssm.time_step_rank", kMostHeads);
    if (c.value_heads % c.key_heads != 0)
        keys.fail("ssm.time_step_rank", join("is ", c.value_heads, ", no multiple of the ", c.key_heads, " of ssm.group_count"));
    if (const int inner = keys.integer("ssm.inner_size"); inner != c.value_heads * 128)
        keys.fail("ssm.inner_size", join("is ", inner, "; ", c.value_heads, " value heads of 128 make ", c.value_heads * 128));
}

int read_vocab(const File& file, const Keys& keys) {
    const gguf::Array* tokens = file.find_array("tokenizer.ggml.tokens", {ValueType::String});
    const int listed = tokens ? static_cast<int>(tokens->count()) : 0, vocab = keys.integer_or("vocab_size", listed);
    if (vocab < 1) file.fail("tokenizer.ggml.tokens", 0, "lists no token");
    if (tokens && listed != vocab) keys.fail("vocab_size", join("is ", vocab, ", and tokenizer.ggml.tokens lists ", listed));
    return vocab;
}

// Finds where the trunk ends. The key says how many MTP blocks there are; block_count counts them or not, and they are there or not.
class Layers {
public:
    Layers(const File& file, const Keys& keys)
        : file_(file), announced_key_(keys.name("nextn_predict_layers")), count_(keys.integer("block_count", kMostLayers)), announced_(keys.integer_or("nextn_predict_layers", 0, 0)),
          interval_(keys.integer_or("full_attention_interval", 4)), flags_(file.find_array(keys.name("attention.recurrent_layers"), {ValueType::Bool})) {
        if (announced_ >= count_) keys.fail("nextn_predict_layers", join("is ", announced_, " of ", count_, " blocks; the trunk needs one"));
        trunk_ = announced_ > 0 && !in_trunk(count_ - 1) ? count_ - announced_ : count_;
        if (flags_ && flags() != trunk_ && flags() != count_ && flags() != trunk_ + announced_)
            keys.fail("attention.recurrent_layers", join("has ", flags(), " flags, and the file ", count_, " blocks"));
    }

    int trunk() const { return trunk_; }
    bool recurrent(int layer) const { return flags_ ? layer < flags() && flag(layer) : (layer + 1) % interval_ != 0; }

    Mtp mtp() const {
        if (announced_ == 0) return Mtp::kNone;
        if (!has_any(layer_name(trunk_, ""))) return Mtp::kAnnouncedButAbsent;
        if (!has_any("blk.0.")) unsupported(file_, "holds an MTP layer only, without the model it belongs to; load the model's own file");
        for (int layer = trunk_; layer < trunk_ + announced_; layer++) {
            for (const Role& role : kRoles)
                if (role.mixer != Mixer::kDeltanet) need(layer_name(layer, role.name));
            for (std::string_view name : kMtpNames) need(layer_name(layer, name));
        }
        return Mtp::kPresent;
    }

private:
    int flags() const { return static_cast<int>(flags_->count()); }
    bool flag(int layer) const { return std::get<std::vector<bool>>(flags_->values)[static_cast<size_t>(layer)]; }

    // A trunk layer has the mixer that the rule gives it, and no tensor of an MTP block.
    bool in_trunk(int layer) const {
        if (flags_ && layer >= flags()) return false;
        return file_.tensor(layer_name(layer, recurrent(layer) ? "attn_qkv.weight" : "attn_q.weight")) && !has_any(layer_name(layer, "nextn."));
    }
    bool has_any(const std::string& prefix) const {
        return std::ranges::any_of(file_.tensors(), [&](const Tensor& t) { return t.name.starts_with(prefix); });
    }
    void need(const std::string& name) const {
        if (file_.tensor(name)) return;
        file_.fail(name, 0, join("is not in the file, and other tensors of this MTP layer are (", announced_key_, " is ", announced_, ")"));
    }

    const File& file_;
    std::string announced_key_;
    int count_, announced_, interval_, trunk_ = 0;
    const gguf::Array* flags_;
};

bool is_mtp(const File& file, const Keys& keys, const std::string& name, int trunk) {
    const auto announced = file.find_integer(keys.name("nextn_predict_layers"), 0, kMostLayers);
    for (int layer = trunk; layer < trunk + announced.value_or(0); layer++)
        if (name.starts_with(layer_name(layer, ""))) return true;
    return false;
}

// A tensor that nothing asked for would be a part of the model that is left out.
void check_rest(const File& file, const Finder& finder, const Config& c) {
    const Keys keys(file, "qwen35");
    for (const Tensor& tensor : file.tensors()) {
        if (c.mtp == Mtp::kPresent && is_mtp(file, keys, tensor.name, c.layers)) continue;
        if (!finder.claimed(tensor.name))
            unsupported(file, join("tensor ", tensor.name, " is no part of a qwen35 model of ", c.layers, " layers as this build knows it"));
    }
}

}  // namespace

Config read_config(const File& file) {
    check_architecture(file);
    const Keys keys(file, "qwen35");
    Config c{};
    c.architecture = "qwen35";
    c.vocab = read_vocab(file, keys);
    c.hidden = keys.bounded("embedding_length", kMostHidden, 32);
    c.ff = keys.bounded("feed_forward_length", kMostColumns, 32);
    c.context_length = keys.integer("context_length");
    c.eps = keys.number("attention.layer_norm_rms_epsilon");
    read_attention(file, keys, c);
    read_deltanet(keys, c);
    const Layers layers(file, keys);
    c.layers = layers.trunk();
    for (int layer = 0; layer < c.layers; layer++) c.recurrent.push_back(layers.recurrent(layer));
    c.mtp = layers.mtp();
    return c;
}

Tensors find_tensors(const File& file, const Config& config) {
    Finder finder(file);
    Tensors out{};
    out.token_embd = finder.find("token_embd.weight", true, config.hidden, config.vocab);
    out.output_norm = finder.find("output_norm.weight", false, config.hidden, 1);
    out.output = file.tensor("output.weight") ? finder.find("output.weight", true, config.hidden, config.vocab) : out.token_embd;
    for (int layer = 0; layer < config.layers; layer++) {
        LayerTensors& tensors = out.layer.emplace_back();
        const Mixer mixer = config.recurrent[static_cast<size_t>(layer)] ? Mixer::kDeltanet : Mixer::kAttention;
        for (const Role& role : kRoles)
            if (role.mixer == Mixer::kEither || role.mixer == mixer)
                tensors.*role.field = finder.find(layer_name(layer, role.name), role.matrix, role.columns(config), role.rows(config));
    }
    check_rest(file, finder, config);
    return out;
}

}  // namespace lucebox::model
