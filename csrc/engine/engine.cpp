#include "engine/engine.h"
#include "engine/devices.h"
#include "engine/plan.h"
#include "ops/float_mode.h"
#include <algorithm>
#include <cstring>

namespace lucebox::engine {

namespace {

model::DraftConfig draft_config(const Options& options, const model::Config& target) {
    if (!options.draft) return {};
    model::DraftConfig config = model::read_draft_config(*options.draft);
    model::check_target(*options.draft, config, target);
    model::find_draft_tensors(*options.draft, config, target.vocab);
    return config;
}

model::Shape shape_of(Options& options, const model::Config& config, const model::DraftConfig& draft) {
    model::Shape shape = check_options(options, config);
    if (!options.draft) {
        LUCE_CHECK(options.draft_block_size == 0, kRequest, "draft_block_size is ", options.draft_block_size, ", and there is no drafter");
        return shape;
    }
    if (options.draft_block_size == 0) options.draft_block_size = draft.block_size;
    LUCE_CHECK(options.draft_block_size >= 2 && options.draft_block_size <= 2 * draft.block_size, kRequest, "draft_block_size is ", options.draft_block_size,
               "; this drafter was trained with ", draft.block_size, ", and 2 to ", 2 * draft.block_size, " are possible");
    LUCE_CHECK(options.draft_block_size <= options.max_rows, kRequest, "draft_block_size is ", options.draft_block_size, "; a step has ", options.max_rows, " rows");
    shape.draft_heads = draft.heads, shape.draft_head_dim = draft.head_dim;
    return shape;
}

}  // namespace

std::vector<ops::PlanEntry> Engine::plan(const gguf::File& file, const Options& asked) {
    Options options = asked;
    const model::Config config = model::read_config(file);
    const model::DraftConfig draft = draft_config(options, config);
    const model::Shape shape = shape_of(options, config, draft);
    const auto backend = open_backend(options, true);
    ops::Memory memory(*backend, true);
    model::Qwen35 target(file, config, shape, *backend, memory, {});
    if (options.draft) model::Drafter(*options.draft, draft, shape, target, config.vocab, *backend, memory, {});
    return memory.entries();
}

Engine::Engine(std::shared_ptr<const gguf::File> file, const Options& options, const Progress& progress)
    : file_(std::move(file)),
      options_(options),
      config_(model::read_config(*file_)),
      draft_config_(draft_config(options_, config_)),
      shape_(shape_of(options_, config_, draft_config_)),
      rope_(config_.theta, config_.rope_dims),
      pages_(shape_.slots, shape_.pages_a_slot()),
      length_(static_cast<size_t>(shape_.slots)),
      pending_(static_cast<size_t>(shape_.slots)),
      looked_at_(static_cast<size_t>(shape_.slots)),
      rings_(static_cast<size_t>(shape_.slots)) {
    const ops::FloatMode mode;
    backend_ = open_backend(options_, false);
    check_fits(plan(*file_, options_), backend_->free_bytes());
    memory_ = std::make_unique<ops::Memory>(*backend_, false);
    open_models(progress);
    options_.variant = backend_->name();
    options_.launch = backend_->launch_mode();
    const size_t rows = static_cast<size_t>(shape_.max_rows), angles = rows * static_cast<size_t>(config_.rope_dims) / 2;
    cos_.resize(angles), sin_.resize(angles);
    batch_.rope_dims = config_.rope_dims, batch_.rope_cos = cos_.data(), batch_.rope_sin = sin_.data();
    if (!drafter_) return;
    draft_rope_.emplace(draft_config_.theta, draft_config_.head_dim);
    const size_t draft_angles = rows * static_cast<size_t>(draft_config_.head_dim) / 2;
    for (std::vector<float>* part : {&draft_cos_, &draft_sin_, &context_cos_, &context_sin_}) part->resize(draft_angles);
    draft_batch_.rope_dims = context_batch_.rope_dims = draft_config_.head_dim;
    draft_batch_.rope_cos = draft_cos_.data(), draft_batch_.rope_sin = draft_sin_.data();
    context_batch_.rope_cos = context_cos_.data(), context_batch_.rope_sin = context_sin_.data();
}

// Both files count by their bytes in the progress.
void Engine::open_models(const Progress& progress) {
    const double target = static_cast<double>(file_->bytes()), draft = options_.draft ? static_cast<double>(options_.draft->bytes()) : 0, all = target + draft;
    const Progress of_target = [&](double part) { progress(part * target / all); }, of_draft = [&](double part) { progress((target + part * draft) / all); };
    model_ = std::make_unique<model::Qwen35>(*file_, config_, shape_, *backend_, *memory_, progress ? of_target : Progress{});
    if (options_.draft)
        drafter_ = std::make_unique<model::Drafter>(*options_.draft, draft_config_, shape_, *model_, config_.vocab, *backend_, *memory_, progress ? of_draft : Progress{});
}

void Engine::reset(int slot) {
    LUCE_CHECK(slot >= 0 && slot < shape_.slots, kRequest, "slot is ", slot, "; the engine has ", shape_.slots);
    model_->reset(slot);
    pages_.release(slot);
    const auto at = static_cast<size_t>(slot);
    length_[at] = pending_[at] = looked_at_[at] = 0;
    rings_[at] = {};
}

void Engine::check(std::span<const Request> requests) const {
    file_->check_unchanged();
    uint32_t seen = 0;
    for (const Request& request : requests) {
        LUCE_CHECK(request.slot >= 0 && request.slot < shape_.slots, kRequest, "slot is ", request.slot, "; the engine has ", shape_.slots);
        LUCE_CHECK(!(seen >> request.slot & 1), kRequest, "slot ", request.slot, " is asked for twice in one call");
        seen |= 1u << request.slot;
        LUCE_CHECK(!request.ids.empty(), kRequest, "slot ", request.slot, " is given no tokens; give at least one");
        for (int32_t id : request.ids)
            LUCE_CHECK(id >= 0 && id < config_.vocab, kRequest, "token id ", id, " is outside the vocabulary of ", config_.vocab);
        const int64_t asked = static_cast<int64_t>(request.ids.size()), held = length(request.slot);
        if (held + asked > shape_.max_ctx)
            throw Error(Kind::kContextFull, join("slot ", request.slot, " holds ", held, " tokens and is given ", asked, "; the context has room for ",
                                                 shape_.max_ctx, "; shorten the prompt or load with a larger max_ctx"),
                        {{"asked", asked}, {"length", held}, {"max_ctx", int64_t{shape_.max_ctx}}});
    }
}

// The next batch: as many rows of the requests, in order, as fit.
std::vector<Engine::Part> Engine::fill(std::span<const Request> requests, std::vector<int>& done) {
    std::vector<Part> parts;
    batch_.rows = batch_.spans = 0;
    for (size_t i = 0; i < requests.size() && batch_.rows < shape_.max_rows; i++) {
        const int slot = requests[i].slot, left = static_cast<int>(requests[i].ids.size()) - done[i];
        const int rows = std::min(left, shape_.max_rows - batch_.rows);
        if (rows == 0) continue;
        parts.push_back({i, done[i], rows});
        batch_.span[batch_.spans++] = {.slot = slot,
                                       .first = batch_.rows,
                                       .rows = rows,
                                       .position = length(slot),
                                       .pending = pending_[static_cast<size_t>(slot)],
                                       .commit = requests[i].commit};
        for (int r = 0; r < rows; r++, batch_.rows++) {
            const int row = batch_.rows, half = config_.rope_dims / 2;
            batch_.token[row] = requests[i].ids[static_cast<size_t>(done[i] + r)];
            batch_.slot[row] = slot;
            batch_.position[row] = length(slot) + r;
            rope_.fill(batch_.position[row], batch_.rope_cos + row * half, batch_.rope_sin + row * half);
        }
        done[i] += rows;
    }
    return parts;
}

void Engine::reserve_pages() {
    for (int i = 0; i < batch_.spans; i++) {
        const ops::Span& span = batch_.span[i];
        if (!pages_.reserve(span.slot, span.position + span.rows)) continue;
        const auto& pages = pages_.of(span.slot);
        backend_->upload(model_->page_table() + static_cast<size_t>(span.slot) * static_cast<size_t>(pages_.pages_a_slot()), pages.data(), pages.size() * sizeof(int32_t));
    }
}

// The slots behind the batch.
void Engine::advance() {
    in_rings_ = false;
    for (int i = 0; i < batch_.spans; i++) {
        const ops::Span& span = batch_.span[i];
        const auto slot = static_cast<size_t>(span.slot);
        pending_[slot] = 0;  // the states have them now
        looked_at_[slot] = span.commit ? 0 : span.rows;
        if (span.commit) length_[slot] += span.rows;
    }
}

// Runs the batch and moves the slots on.
void Engine::run(const model::Qwen35::Look& look) {
    reserve_pages();
    model_->use(batch_);
    model_->forward(look);
    advance();
}

void Engine::run_head(std::span<const int32_t> rows, int32_t* best) {
    batch_.wanted = static_cast<int>(rows.size());
    std::copy(rows.begin(), rows.end(), batch_.want);
    model_->use(batch_);
    model_->head(0, batch_.wanted);
    backend_->download(best, model_->best(), rows.size() * sizeof(int32_t));
    if (std::find_if(best, best + rows.size(), [](int32_t id) { return id < 0; }) != best + rows.size()) explain_nan();
}

void Engine::run_batch(std::span<const Request> requests) {
    check(requests);
    size_t rows = 0;
    for (const Request& request : requests) {
        rows += request.ids.size();
        LUCE_CHECK(request.commit || request.ids.size() <= ops::kMaxPending, kRequest, "slot ", request.slot, " is given ", request.ids.size(),
                   " tokens to look at; at most ", int{ops::kMaxPending}, " can be kept");
    }
    LUCE_CHECK(rows >= 1 && rows <= static_cast<size_t>(shape_.max_rows), kRequest, "the step has ", rows, " rows; it may have 1 to ", shape_.max_rows);
    const ops::FloatMode mode;
    std::vector<int> done(requests.size());
    fill(requests, done);
    try {
        run({});
    } catch (...) {
        for (const Request& request : requests) reset(request.slot);
        throw;
    }
}

void Engine::head(std::span<const int32_t> rows, int32_t* best, float* logits) {
    const ops::FloatMode mode;
    const size_t vocab = static_cast<size_t>(config_.vocab);
    for (size_t at = 0; at < rows.size(); at += model::kHeadRows) {
        const auto part = rows.subspan(at, std::min<size_t>(model::kHeadRows, rows.size() - at));
        run_head(part, best + at);
        if (logits) backend_->download(logits + at * vocab, model_->logits(), part.size() * vocab * sizeof(float));
    }
}

void Engine::read_logits(std::span<const Request> requests, const std::vector<Part>& parts, Want want, void* out) {
    std::vector<size_t> place;  // of each wanted row in out
    wanted_.clear();
    size_t before = 0;
    for (size_t i = 0, p = 0; i < requests.size(); before += requests[i++].ids.size()) {
        if (p == parts.size() || parts[p].request != i) continue;
        const Part& part = parts[p];
        const int first_row = batch_.span[p++].first;
        const bool ends = part.first + part.rows == static_cast<int>(requests[i].ids.size());
        for (int r = 0; r < part.rows; r++) {
            if (want != Want::kAll && !(ends && r == part.rows - 1)) continue;
            wanted_.push_back(first_row + r);
            place.push_back(want == Want::kAll ? before + static_cast<size_t>(part.first + r) : i);
        }
    }
    const size_t vocab = static_cast<size_t>(config_.vocab);
    for (size_t at = 0; at < wanted_.size(); at += model::kHeadRows) {
        const size_t count = std::min<size_t>(model::kHeadRows, wanted_.size() - at);
        int32_t best[model::kHeadRows];
        run_head({wanted_.data() + at, count}, best);
        for (size_t i = 0; i < count; i++) {
            if (want == Want::kArgmax) static_cast<int32_t*>(out)[place[at + i]] = best[i];
            else backend_->download(static_cast<float*>(out) + place[at + i] * vocab, model_->logits() + i * vocab, vocab * sizeof(float));
        }
    }
}

// The step again, with a look at each layer: the first whose rows are no numbers is to blame.
void Engine::explain_nan() {
    std::string where = "the output head";
    bool found = false;
    std::vector<float> h(static_cast<size_t>(batch_.rows) * static_cast<size_t>(config_.hidden));
    model_->use(batch_);
    model_->forward([&](int layer, const float* rows) {
        backend_->download(h.data(), rows, h.size() * sizeof(float));
        if (found || std::all_of(h.begin(), h.end(), [](float x) { return x - x == 0.0f; })) return;
        found = true, where = join("layer ", layer, config_.recurrent[static_cast<size_t>(layer)] ? " (DeltaNet)" : " (attention)");
    });
    for (int i = 0; i < batch_.spans; i++) reset(batch_.span[i].slot);
    throw Error(Kind::kDevice, join("the logits are no numbers; first seen in ", where,
                                    "; the file's weights are damaged or overflow: check it with `lucebox inspect --check`"));
}

void Engine::forward(std::span<const Request> requests, Want want, void* out, const Poll& poll) {
    check(requests);
    const ops::FloatMode mode;
    std::vector<int> done(requests.size());
    try {
        for (auto parts = fill(requests, done); !parts.empty(); parts = fill(requests, done)) {
            run({});
            if (want != Want::kNone) read_logits(requests, parts, want, out);
            if (poll) poll();
        }
    } catch (...) {  // half-done requests leave no trace
        for (const Request& request : requests) reset(request.slot);
        throw;
    }
}

void Engine::hidden(std::span<const int32_t> ids, std::span<const int> layers, float* out, const Poll& poll) {
    const Request request{0, ids};
    check({&request, 1});
    LUCE_CHECK(length(0) == 0, kRequest, "slot 0 holds ", length(0), " tokens; reset it first");
    for (int layer : layers) LUCE_CHECK(layer >= 0 && layer < config_.layers, kRequest, "layer ", layer, " is not in 0 to ", config_.layers - 1);
    const ops::FloatMode mode;
    std::vector<int> done(1);
    const size_t width = static_cast<size_t>(config_.hidden);
    try {
        for (auto parts = fill({&request, 1}, done); !parts.empty(); parts = fill({&request, 1}, done)) {
            const size_t first = static_cast<size_t>(parts[0].first), rows = static_cast<size_t>(parts[0].rows);
            run([&](int layer, const float* h) {
                for (size_t i = 0; i < layers.size(); i++)
                    if (layers[i] == layer) backend_->download(out + (i * ids.size() + first) * width, h, rows * width * sizeof(float));
            });
            if (poll) poll();
        }
    } catch (...) {
        reset(0);
        throw;
    }
    reset(0);
}

}  // namespace lucebox::engine
