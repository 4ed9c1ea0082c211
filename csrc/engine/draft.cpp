// The engine's side of a drafter: blocks in, candidates out, and the ring's context behind every batch.
#include "engine/engine.h"
#include "ops/float_mode.h"
#include <numeric>

namespace lucebox::engine {

void Engine::add_draft_row(int slot, int position, int32_t token) {
    ops::Batch& b = draft_batch_;
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
    if (drafter_) project(from, rows);
}

// The kept rows of the last batch into the drafter's rings.
void Engine::project(std::span<const int> from, std::span<const int> kept_rows) {
    const ops::FloatMode mode;
    ops::Batch& b = draft_batch_;
    b.rows = b.spans = b.wanted = 0;
    for (int i = 0; i < batch_.spans; i++) {
        const ops::Span& span = batch_.span[i];
        const auto slot = static_cast<size_t>(span.slot);
        Ring& ring = rings_[slot];
        const int first = from.empty() ? span.position : std::max(span.position, from[slot]), end = span.position + kept_rows[slot];
        if (first >= end) continue;
        if (ring.end != first) ring.first = first;  // a gap: what lies before it is no context
        ring.end = end;
        for (int position = first; position < end; position++) {
            b.want[b.wanted++] = span.first + position - span.position;
            add_draft_row(span.slot, position, 0);
        }
    }
    if (b.rows) drafter_->context(b);
}

void Engine::draft(std::span<const Block> blocks, int32_t* candidates, float* edges) {
    const ops::FloatMode mode;
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
            add_draft_row(block.slot, position + r, r == 0 ? block.anchor : draft_config_.mask_token);
        }
    }
    drafter_->draft(b);
    const auto count = static_cast<size_t>(b.wanted);
    backend_->download(candidates, drafter_->candidates(), count * ops::kCandidates * sizeof(int32_t));
    backend_->download(edges, drafter_->edges(), count * ops::kCandidates * ops::kCandidates * sizeof(float));
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
