// The engine's side of a drafter: blocks in, candidates out, and the ring's context behind every batch.
#include "engine/engine.h"
#include "ops/float_mode.h"
#include <algorithm>
#include <numeric>

namespace lucebox::engine {

void Engine::add_draft_row(ops::Batch& b, int slot, int position, int32_t token) {
    const int half = draft_config_.head_dim / 2;
    b.token[b.rows] = token, b.slot[b.rows] = slot, b.position[b.rows] = position;
    draft_rope_->fill(position, b.rope_cos + b.rows * half, b.rope_sin + b.rows * half);
    b.rows++;
}

void Engine::accept(std::span<const Kept> kept, std::span<const int> from) {
    std::vector<int> rows(static_cast<size_t>(shape_.slots));  // kept of each slot's rows in the batch
    for (int i = 0; i < batch_.spans; i++)
        if (batch_.span[i].commit) rows[static_cast<size_t>(batch_.span[i].slot)] = batch_.span[i].rows;
    for (const Kept& k : kept) {
        const auto slot = static_cast<size_t>(k.slot);
        LUCE_CHECK(k.rows >= 0 && k.rows <= looked_at_.at(slot), kRequest, "slot ", k.slot, " is to keep ", k.rows, " rows; ", looked_at_.at(slot), " were looked at");
        length_[slot] += k.rows;
        pending_[slot] = rows[slot] = k.rows;
        looked_at_[slot] = 0;
    }
    if (!drafter_) return;
    context_batch_.rows = context_batch_.wanted = 0;
    for (int i = 0; i < batch_.spans; i++) {
        const ops::Span& span = batch_.span[i];
        const auto slot = static_cast<size_t>(span.slot);
        add_context(span, from.empty() ? span.position : std::max(span.position, from[slot]), span.position + rows[slot]);
    }
    if (in_rings_ || context_batch_.rows == 0) return;
    const ops::FloatMode mode;
    drafter_->use_context(context_batch_);
    drafter_->context();
}

// Positions first .. end - 1 of a span of the last batch, on their way into the drafter's ring.
void Engine::add_context(const ops::Span& span, int first, int end) {
    if (first >= end) return;
    Ring& ring = rings_[static_cast<size_t>(span.slot)];
    if (ring.end != first) ring.first = first;  // a gap: what lies before it is no context
    ring.end = end;
    ops::Batch& b = context_batch_;
    for (int position = first; position < end; position++) {
        b.want[b.wanted++] = span.first + position - span.position;
        add_draft_row(b, span.slot, position, 0);
    }
}

void Engine::fill_blocks(std::span<const Block> blocks) {
    ops::Batch& b = draft_batch_;
    b.rows = b.spans = b.wanted = 0;
    for (const Block& block : blocks) {
        const int position = length(block.slot);
        const Ring& ring = rings_[static_cast<size_t>(block.slot)];
        LUCE_CHECK(block.rows >= 2 && b.rows + block.rows <= shape_.max_rows, kRequest, "a draft of ", block.rows, " rows, ", b.rows, " before it; at least 2, and ",
                   shape_.max_rows, " in all");
        b.span[b.spans++] = {.slot = block.slot,
                             .first = b.rows,
                             .rows = block.rows,
                             .position = position,
                             .pending = 0,
                             .commit = false,
                             .context = ring.end == position ? position - ring.first : 0};
        for (int r = 0; r < block.rows; r++) {
            if (r > 0) b.want[b.wanted++] = b.rows;
            add_draft_row(b, block.slot, position + r, r == 0 ? block.anchor : draft_config_.mask_token);
        }
    }
    drafter_->use_blocks(b);
}

void Engine::draft(std::span<const Block> blocks, int32_t* candidates, float* edges) {
    const ops::FloatMode mode;
    fill_blocks(blocks);
    drafter_->draft();
    const auto count = static_cast<size_t>(draft_batch_.wanted);
    backend_->download(candidates, drafter_->candidates(), count * ops::kCandidates * sizeof(int32_t));
    backend_->download(edges, drafter_->edges(), count * ops::kCandidates * ops::kCandidates * sizeof(float));
}

// The rows that verify the blocks: anchors, and places for the paths.
void Engine::fill_paths(std::span<const Block> blocks) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<Request> requests;
    for (const Block& block : blocks) {
        LUCE_CHECK(block.verify >= 2 && block.verify <= block.rows, kRequest, block.verify, " rows are to verify a block of ", block.rows);
        auto& row_ids = ids.emplace_back(static_cast<size_t>(block.verify));
        row_ids[0] = block.anchor;
    }
    for (size_t i = 0; i < blocks.size(); i++) requests.push_back({blocks[i].slot, ids[i], false});
    check(requests);
    std::vector<int> done(requests.size());
    fill(requests, done);
    batch_.wanted = batch_.rows;
    std::iota(batch_.want, batch_.want + batch_.rows, 0);
}

void Engine::speculate(std::span<const Block> blocks, int32_t* drafted, int32_t* best) {
    const ops::FloatMode mode;
    fill_paths(blocks);
    fill_blocks(blocks);
    context_batch_.rows = context_batch_.wanted = 0;
    const std::vector<Ring> rings = rings_;  // what is accepted moves them
    for (int i = 0; i < batch_.spans; i++) add_context(batch_.span[i], batch_.span[i].position, batch_.span[i].position + batch_.span[i].rows);
    rings_ = rings;
    try {
        reserve_pages();
        ops::Batch* verify = model_->use(batch_);
        drafter_->use_context(context_batch_);
        const int wanted = backend_->launch_rows(draft_batch_.wanted);
        backend_->run({model::kWholeStep, wanted}, {verify, drafter_->blocks(), drafter_->context_rows()}, [&] {
            drafter_->draft();
            drafter_->walk(verify);
            model_->forward();
            model_->argmax();
            drafter_->context();
        });
        advance();
        in_rings_ = true;
        backend_->download(drafted, drafter_->path(), static_cast<size_t>(draft_batch_.wanted) * sizeof(int32_t));
        backend_->download(best, model_->best(), static_cast<size_t>(batch_.wanted) * sizeof(int32_t));
        if (std::find_if(best, best + batch_.wanted, [](int32_t id) { return id < 0; }) != best + batch_.wanted) explain_paths(drafted);
    } catch (...) {
        for (const Block& block : blocks) reset(block.slot);
        throw;
    }
}

// As explain_nan(), with the tokens that the backend's batch had.
void Engine::explain_paths(const int32_t* drafted) {
    for (int s = 0; s < batch_.spans; s++) {
        const ops::Span &path = draft_batch_.span[s], &span = batch_.span[s];
        for (int r = 1; r < span.rows; r++) batch_.token[span.first + r] = std::max(0, drafted[path.first + r - s - 1]);
    }
    explain_nan();
}

spec::Machine Engine::machine() const {
    constexpr uint64_t kCaches = 64 << 20;
    if (options_.device != "cpu") return spec::Machine::kGpu;
    return file_->bytes() <= kCaches ? spec::Machine::kCached : spec::Machine::kCpu;
}

double Engine::draft_share() const {
    const gguf::Tensor* head = file_->tensor("output.weight");
    if (!head) head = file_->tensor("token_embd.weight");
    const double read = static_cast<double>(options_.draft->bytes() + head->bytes);
    return read / static_cast<double>(file_->bytes());
}

int Engine::mended_taps() {
    std::vector<int32_t> counts(static_cast<size_t>(shape_.max_rows));
    if (drafter_) backend_->download(counts.data(), drafter_->mended(), counts.size() * sizeof(int32_t));
    return std::accumulate(counts.begin(), counts.end(), 0);
}

}  // namespace lucebox::engine
