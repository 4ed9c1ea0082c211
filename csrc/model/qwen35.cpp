#include "model/qwen35.h"
#include <algorithm>
#include <cstring>

namespace lucebox::model {

using ops::Weight;

// Gives each tensor of the file its place: matrices mapped or in the backend's own order, vectors copied side by side.
class Qwen35::Loader {
public:
    Loader(ops::Backend& backend, ops::Memory& memory, const Progress& progress) : backend_(backend), memory_(memory), progress_(progress) {}

    void matrix(const gguf::Tensor* tensor, Weight& weight) {
        for (const auto& [known, place] : matrices_)
            if (known == tensor) return shared_.push_back({place, &weight});  // a head that is tied to the embedding
        matrices_.push_back({tensor, &weight});
    }
    void vector(const gguf::Tensor* tensor, const float*& pointer) { vectors_.push_back({tensor, &pointer}); }
    void table(const gguf::Tensor* tensor, Weight& weight) {
        if (!backend_.reads_mapped()) return matrix(tensor, weight);
        weight = {tensor->type, static_cast<int>(tensor->rows()), static_cast<int>(tensor->columns()), tensor->data, nullptr};
        mapped_ += tensor->bytes;
    }

    void load() {
        uint64_t packed = 0, floats = 0, done = 0, all = 0;
        for (const auto& [tensor, weight] : matrices_) {
            packed += packed_bytes(*tensor);
            if (packed_bytes(*tensor) == 0) mapped_ += tensor->bytes;
            all += tensor->bytes;
        }
        for (const auto& [tensor, pointer] : vectors_) floats += aligned(tensor->bytes) / sizeof(float);
        memory_.map("weights, mapped", mapped_);
        uint8_t* at = memory_.take<uint8_t>("weights, repacked", packed);
        float* vector = memory_.take<float>("norms and vectors", floats);
        if (memory_.dry()) return;
        for (const auto& [tensor, pointer] : vectors_) {
            backend_.upload(vector, tensor->data, tensor->bytes);
            *pointer = vector;
            vector += aligned(tensor->bytes) / sizeof(float);
        }
        for (const auto& [tensor, weight] : matrices_) {
            const uint64_t bytes = packed_bytes(*tensor);
            *weight = backend_.prepare(*tensor, bytes ? at : nullptr);
            at += bytes, done += tensor->bytes;
            if (progress_) progress_(static_cast<double>(done) / static_cast<double>(all));
        }
        for (const auto& [from, to] : shared_) *to = *from;
    }

private:
    static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
    uint64_t packed_bytes(const gguf::Tensor& t) const { return aligned(backend_.packed_bytes(t.type, t.rows(), t.columns())); }

    ops::Backend& backend_;
    ops::Memory& memory_;
    const Progress& progress_;
    uint64_t mapped_ = 0;
    std::vector<std::pair<const gguf::Tensor*, Weight*>> matrices_;
    std::vector<std::pair<const Weight*, Weight*>> shared_;
    std::vector<std::pair<const gguf::Tensor*, const float**>> vectors_;
};

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

ops::Acts Qwen35::take_acts(ops::Memory& memory, const std::string& name, int columns) {
    const uint64_t n = static_cast<uint64_t>(shape_.max_rows) * static_cast<uint64_t>(columns);
    ops::Acts acts{columns, nullptr, nullptr, nullptr, nullptr};
    acts.x = memory.take<float>(name + ", f32", n);
    acts.q = memory.take<int8_t>(name + ", int8", n);
    acts.d = memory.take<float>(name + ", scales", n / 32);
    acts.sum = memory.take<int32_t>(name + ", sums", n / 16);
    return acts;
}

void Qwen35::take_buffers(ops::Memory& memory) {
    const Config& c = config_;
    const uint64_t rows = static_cast<uint64_t>(shape_.max_rows);
    const int mixer = std::max(c.value_heads * ops::kHeadDim, c.heads * c.head_dim);
    const int wide = std::max({c.channels(), 2 * c.heads * c.head_dim, c.ff}), second = std::max({c.value_heads * ops::kHeadDim, c.kv_heads * c.head_dim, c.ff});
    h_ = memory.take<float>("residual stream", rows * static_cast<uint64_t>(c.hidden));
    normed_ = take_acts(memory, "normed rows", c.hidden);
    mixed_ = take_acts(memory, "mixer rows", mixer);
    gated_ = take_acts(memory, "FFN rows", c.ff);
    in_[0] = memory.take<float>("projections, first", rows * static_cast<uint64_t>(wide));
    in_[1] = memory.take<float>("projections, second", rows * static_cast<uint64_t>(second));
    in_[2] = memory.take<float>("projections, third", rows * static_cast<uint64_t>(std::max(c.value_heads, c.kv_heads * c.head_dim)));
    in_[3] = memory.take<float>("projections, fourth", rows * static_cast<uint64_t>(c.value_heads));
    logits_ = memory.take<float>("logits", std::min<uint64_t>(rows, kHeadRows) * static_cast<uint64_t>(c.vocab));
    best_ = memory.take<int32_t>("argmax", kHeadRows);
    const ops::Limits limits{.max_rows = shape_.max_rows,
                             .slots = shape_.slots,
                             .key_heads = c.key_heads,
                             .value_heads = c.value_heads,
                             .heads = c.heads,
                             .head_dim = c.head_dim,
                             .rope_dims = c.rope_dims};
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

void Qwen35::matmul(const ops::Acts& acts, int rows, std::initializer_list<std::pair<const Weight*, float*>> outputs, bool residual) {
    ops::Matmul op{.acts = acts, .rows = rows, .weights = 0, .weight = {}, .y = {}, .residual = residual};
    for (const auto& [weight, y] : outputs) op.weight[op.weights] = *weight, op.y[op.weights++] = y;
    backend_.matmul(op);
}

void Qwen35::deltanet(const Layer& l) {
    ops::Acts y = mixed_;
    y.columns = config_.value_heads * ops::kHeadDim;
    matmul(normed_, rows_, {{&l.attn_qkv, in_[0]}, {&l.attn_gate, in_[1]}, {&l.ssm_alpha, in_[2]}, {&l.ssm_beta, in_[3]}});
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
    matmul(y, rows_, {{&l.ssm_out, h_}}, true);
}

void Qwen35::attention(const Layer& l) {
    ops::Acts y = mixed_;
    y.columns = config_.heads * config_.head_dim;
    matmul(normed_, rows_, {{&l.attn_q, in_[0]}, {&l.attn_k, in_[1]}, {&l.attn_v, in_[2]}});
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
    matmul(y, rows_, {{&l.attn_output, h_}}, true);
}

void Qwen35::ffn(const Layer& l) {
    norm(l.post_attention_norm, rows_, nullptr);
    matmul(normed_, rows_, {{&l.ffn_gate, in_[0]}, {&l.ffn_up, in_[1]}});
    backend_.swiglu({.gate = in_[0], .up = in_[1], .rows = rows_, .ff = config_.ff, .y = gated_});
    matmul(gated_, rows_, {{&l.ffn_down, h_}}, true);
}

void Qwen35::layers(const Tap& tap) {
    backend_.embed({.batch = batch_, .weight = token_embd_, .h = h_});
    for (int il = 0; il < config_.layers; il++) {
        const Layer& l = layers_[static_cast<size_t>(il)];
        norm(l.attn_norm, rows_, nullptr);
        if (config_.recurrent[static_cast<size_t>(il)]) deltanet(l);
        else attention(l);
        ffn(l);
        if (tap) tap(il, h_);
    }
}

void Qwen35::forward(const ops::Batch& batch, const Tap& tap) {
    batch_ = backend_.use_batch(batch);
    rows_ = backend_.launch_rows(batch.rows);
    if (tap) layers(tap);  // a tap reads between layers: nothing is captured
    else backend_.run(0, [this] { layers({}); });
}

void Qwen35::head(const ops::Batch& batch) {
    batch_ = backend_.use_batch(batch);
    const int rows = backend_.launch_rows(batch.wanted);
    backend_.run(1, [this, rows] {
        norm(output_norm_, rows, batch_->want);
        matmul(normed_, rows, {{&output_, logits_}});
        backend_.argmax({.logits = logits_, .rows = rows, .vocab = config_.vocab, .id = best_});
    });
}

}  // namespace lucebox::model
