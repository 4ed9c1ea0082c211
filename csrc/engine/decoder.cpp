#include "engine/decoder.h"
#include "spec/accept.h"
#include "ops/float_mode.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

namespace lucebox::engine {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

bool is_end(const Sequence& s, int32_t id) { return std::ranges::find(s.params.end_ids, id) != s.params.end_ids.end(); }

// Whether a row's token is its argmax, so that its logits need not be read.
bool plain_row(const Sequence& s, const StepWork& work) {
    const SequenceParams& p = s.params;
    return p.sampling.temperature == 0 && p.penalties.none() && p.logprobs < 0 && work.masks.empty() && (p.min_tokens <= s.emitted() || p.end_ids.empty());
}

}  // namespace

Decoder::Decoder(Engine& engine) : engine_(engine), costs_(spec::costs_of(engine.machine())), sequences_(static_cast<size_t>(engine.options().slots)) {}

void Decoder::begin(int slot, const SequenceParams& params, std::span<const int32_t> prompt) {
    const int vocab = engine_.config().vocab;
    spec::check(params.sampling);
    spec::check(params.penalties, vocab);
    LUCE_CHECK(params.min_tokens >= 0, kRequest, "min_tokens is ", params.min_tokens, "; it may be 0 or more");
    LUCE_CHECK(params.logprobs >= -1 && params.logprobs <= vocab, kRequest, "logprobs is ", params.logprobs, "; it may be -1 (none) to ", vocab);
    LUCE_CHECK(params.selector == spec::Selector::kWalk || engine_.drafts(), kRequest, "selector chooses among a drafter's candidates, and the engine has no drafter");
    LUCE_CHECK(params.draft_width == 0 || engine_.drafts(), kRequest, "draft_width is ", params.draft_width, ", and the engine has no drafter");
    LUCE_CHECK(params.draft_width == 0 || (params.draft_width >= 2 && params.draft_width <= 2 * engine_.drafter().block_size), kRequest, "draft_width is ",
               params.draft_width, "; this drafter was trained with ", engine_.drafter().block_size, ", and 2 to ", 2 * engine_.drafter().block_size, " are possible");
    LUCE_CHECK(!prompt.empty(), kRequest, "the prompt is empty; at least one token is needed");
    for (const int32_t id : prompt) LUCE_CHECK(id >= 0 && id < vocab, kRequest, "token id ", id, " is outside the vocabulary of ", vocab);
    engine_.reset(slot);
    Sequence& s = sequences_[static_cast<size_t>(slot)].emplace();
    s.params = params;
    s.prompt = prompt.size();
    s.history.append(prompt);
    for (const int32_t id : prompt) s.counts.add_prompt(id);
}

void Decoder::end(int slot) {
    engine_.reset(slot);
    sequences_[static_cast<size_t>(slot)].reset();
}

Sequence& Decoder::running(int slot) {
    LUCE_CHECK(slot >= 0 && slot < static_cast<int>(sequences_.size()), kRequest, "slot is ", slot, "; the engine has ", sequences_.size());
    auto& sequence = sequences_[static_cast<size_t>(slot)];
    LUCE_CHECK(sequence, kRequest, "slot ", slot, " runs no sequence; begin one");
    return *sequence;
}

const Sequence& Decoder::sequence(int slot) const { return const_cast<Decoder*>(this)->running(slot); }

// Tokens that may be drafted: one token more than them is emitted, and the anchor and they need room in the context.
int Decoder::room(int slot, int limit) const {
    return std::max(0, std::min({limit - 1, engine_.options().max_ctx - engine_.length(slot) - 1, spec::kMostDrafted, engine_.options().max_rows - 1}));
}

int Decoder::rows_needed(int slot, int limit) const {
    const Sequence& s = sequence(slot);
    const bool drafts = s.params.judge != Judge::kOff && (s.params.lookup || engine_.drafts());
    return drafts ? 1 + std::min(room(slot, limit), std::max(s.params.lookup ? spec::kMostLookup : 0, block_rows(s) - 1)) : 1;
}

// Rows of the blocks that the drafter runs for a sequence; 0: it runs none.
int Decoder::block_rows(const Sequence& s) const {
    if (!engine_.drafts() || (s.adapts() && !s.policy.asks(s.history.ids().size()))) return 0;
    return s.params.draft_width ? s.params.draft_width : engine_.options().draft_block_size;
}

// What each slot's history says, where it says enough; what it says less surely is a hint, for the drafter's word on it.
std::vector<spec::Proposal> Decoder::propose(std::span<const std::pair<int, int>> slots_and_limits) {
    std::vector<spec::Proposal> out(slots_and_limits.size()), hints(slots_and_limits.size());
    std::vector<Block> blocks;
    std::vector<size_t> owner;
    for (size_t i = 0; i < slots_and_limits.size(); i++) {
        const auto [slot, limit] = slots_and_limits[i];
        const Sequence& s = running(slot);
        const int most = room(slot, limit);
        if (s.params.judge == Judge::kOff || most == 0) continue;
        // The whole block is drafted, and cut afterwards: what a row sees depends on the rows behind it.
        const int rows = std::min(block_rows(s), engine_.options().max_ctx - engine_.length(slot));
        bool sure = false;
        hints[i] = hint(s, rows, most, sure);
        if (rows < 2 || (sure && !hints[i].ids.empty())) out[i] = worthy(s, std::move(hints[i]), 0);
        else blocks.push_back({slot, s.history.ids().back(), rows}), owner.push_back(i);
    }
    draft_blocks(blocks);
    size_t at = 0;
    for (size_t j = 0; j < blocks.size(); j++) {
        const auto [slot, limit] = slots_and_limits[owner[j]];
        const Sequence& s = running(slot);
        spec::Proposal drafted = chosen(s, at, blocks[j].rows - 1, room(slot, limit));
        spec::extend(drafted, hints[owner[j]]);
        out[owner[j]] = worthy(s, std::move(drafted), draft_cost(blocks[j].rows));
        out[owner[j]].asked = blocks[j].rows;
        at += static_cast<size_t>(blocks[j].rows - 1);
    }
    return out;
}

// What the history says behind the text; sure: it says it without the drafter. A short match that no drafter confirms is trusted for as many tokens as
// it has.
spec::Proposal Decoder::hint(const Sequence& s, int rows, int most, bool& sure) const {
    const spec::History::Match match = s.params.lookup ? s.history.find() : spec::History::Match{};
    sure = match.length >= spec::LookupPolicy::kAlone;
    if (match.length < s.lookup.least(s.history.ids().size())) return {};
    return spec::look_up(match, sure || rows >= 2 ? most : std::min(most, match.length));
}

// As much of a proposal as pays.
spec::Proposal Decoder::worthy(const Sequence& s, spec::Proposal proposal, double spent) const {
    if (s.history.ids().size() > static_cast<size_t>(spec::kDeep)) spec::cut(proposal, spec::kDeepRows - 1);
    if (s.adapts()) spec::cut(proposal, s.policy.worth(proposal, costs_, spent));
    return proposal;
}

// Of a block of so many rows, in plain steps: the drafter reads its own weights and the head.
double Decoder::draft_cost(int rows) const { return rows ? costs_.of(rows) * engine_.draft_share() : 0; }

// As many blocks at a time as the engine has rows for.
void Decoder::draft_blocks(std::span<const Block> blocks) {
    constexpr size_t kRow = ops::kCandidates, kEdges = ops::kCandidates * ops::kCandidates;
    size_t rows = 0;
    for (const Block& block : blocks) rows += static_cast<size_t>(block.rows - 1);
    candidates_.resize(rows * kRow), edges_.resize(rows * kEdges);
    for (size_t first = 0, at = 0; first < blocks.size();) {
        size_t last = first, taken = 0, drafted = 0;
        while (last < blocks.size() && taken + static_cast<size_t>(blocks[last].rows) <= static_cast<size_t>(engine_.options().max_rows)) {
            taken += static_cast<size_t>(blocks[last].rows);
            drafted += static_cast<size_t>(blocks[last++].rows - 1);
        }
        engine_.draft(blocks.subspan(first, last - first), candidates_.data() + at * kRow, edges_.data() + at * kEdges);
        first = last, at += drafted;
    }
}

// A path through the candidates of a block whose rows begin at `at`.
spec::Proposal Decoder::chosen(const Sequence& s, size_t at, int rows, int most) {
    const spec::Lattice lattice{candidates_.data() + at * ops::kCandidates, edges_.data() + at * ops::kCandidates * ops::kCandidates, rows, engine_.drafter().top_k};
    const spec::SamplingParams& p = s.params.sampling;
    spec::Proposal out = s.draws()
                             ? spec::draw(lattice, p.temperature, p.seed, static_cast<uint32_t>(s.history.ids().size()), s.params.choice)
                             : spec::select(lattice, s.params.selector);
    spec::cut(out, most);
    return out;
}

void Decoder::check(const StepWork& work) {
    const Sequence& s = running(work.slot);
    const size_t length = static_cast<size_t>(engine_.length(work.slot)), rows = work.ids.size();
    LUCE_CHECK(work.limit >= 1, kRequest, "limit is ", work.limit, "; a step gives at least one token");
    if (work.ids.empty()) {
        LUCE_CHECK(s.emitted() > 0, kRequest, "slot ", work.slot, " has ", s.prompt - length, " tokens of its prompt left to run");
        return;
    }
    LUCE_CHECK(length + rows <= s.prompt && std::equal(work.ids.begin(), work.ids.end(), s.history.ids().begin() + static_cast<ptrdiff_t>(length)), kRequest,
               "slot ", work.slot, " is given ", rows, " tokens that do not go on with its prompt");
    LUCE_CHECK(work.emit == (length + rows == s.prompt), kRequest, "emit belongs to the prompt's last chunk, and to no other");
    LUCE_CHECK(!work.draft && !work.look, kRequest, "draft and look are for a decode, not for a chunk of the prompt");
}

Decoder::Rows Decoder::make_rows(const StepWork& work) {
    Rows rows{&work, &running(work.slot), {}, work.ids, {}, 0};
    if (!work.ids.empty()) return rows;
    if (work.draft) {
        rows.proposal = *work.draft;
        const int most = room(work.slot, work.limit);
        LUCE_CHECK(rows.proposal.ids.size() <= static_cast<size_t>(spec::kMostDrafted), kRequest, "slot ", work.slot, " is given a draft of ", rows.proposal.ids.size(),
                   " tokens; at most ", spec::kMostDrafted, " are verified in a step");
        spec::cut(rows.proposal, most);
    }
    return rows;
}

// The rows of the batch whose tokens are wanted, in the batch's order.
std::vector<int32_t> Decoder::judged_rows(std::vector<Rows>& all) {
    std::vector<int32_t> wanted;
    int32_t first = 0;
    for (Rows& rows : all) {
        const int32_t end = first + static_cast<int32_t>(rows.ids.size());
        rows.at = wanted.size();
        for (int32_t r = rows.work->ids.empty() ? first : rows.work->emit ? end - 1 : end; r < end; r++) wanted.push_back(r);
        rows.judged = wanted.size() - rows.at;
        first = end;
        const size_t words = (static_cast<size_t>(engine_.config().vocab) + 31) / 32;
        LUCE_CHECK(rows.work->masks.empty() || rows.work->masks.size() == rows.judged * words, kRequest, "slot ", rows.work->slot, " has masks of ",
                   rows.work->masks.size(), " words; ", rows.judged, " rows of ", words, " are wanted");
    }
    return wanted;
}

std::vector<StepResult> Decoder::step(std::span<const StepWork> works) {
    const ops::FloatMode mode;
    const auto start = Clock::now();
    for (const StepWork& work : works) check(work);
    std::vector<Rows> all;
    for (const StepWork& work : works) all.push_back(make_rows(work));
    const std::vector<Block> blocks = whole_blocks(all);
    if (blocks.empty()) draft(all);
    const double draft_ms = blocks.empty() ? since(start) : 0;
    const auto verify_start = Clock::now();
    std::vector<StepResult> results;
    try {
        if (blocks.empty()) verify(all);
        else speculate(all, blocks);
        for (Rows& rows : all) results.push_back(judge_or_end(rows));
        std::vector<Kept> kept;
        for (size_t i = 0; i < all.size(); i++)
            if (results[i].error.empty()) keep(all[i], results[i], kept);
        engine_.accept(kept, context_from());
    } catch (const Error& error) {
        if (error.kind() == Kind::kDevice)
            for (const Rows& rows : all) end(rows.work->slot);
        throw;
    }
    const double verify_ms = since(verify_start);
    for (StepResult& result : results) result.draft_ms = draft_ms, result.verify_ms = verify_ms;
    return results;
}

// The rows through the target, and what it says of those that are judged.
void Decoder::verify(std::vector<Rows>& all) {
    const std::vector<int32_t> wanted = judged_rows(all);
    std::vector<Request> requests;
    bool logits = false;
    for (const Rows& rows : all) {
        requests.push_back({rows.work->slot, rows.ids, !rows.work->ids.empty() || (rows.ids.size() == 1 && !rows.work->look)});
        logits = logits || rows.work->logits || !plain_row(*rows.sequence, *rows.work);
    }
    engine_.run_batch(requests);
    best_.resize(wanted.size());
    if (logits) logits_.resize(wanted.size() * static_cast<size_t>(engine_.config().vocab));
    engine_.head(wanted, best_.data(), logits ? logits_.data() : nullptr);
}

// Where every sequence of a step takes its drafter's path as it is and judges it by argmax, the step needs no look in between: its blocks, else none.
std::vector<Block> Decoder::whole_blocks(const std::vector<Rows>& all) const {
    std::vector<Block> blocks;
    int drafted = 0;
    for (const Rows& rows : all) {
        const StepWork& work = *rows.work;
        const Sequence& s = *rows.sequence;
        const int most = room(work.slot, work.limit), block = std::min(block_rows(s), engine_.options().max_ctx - engine_.length(work.slot));
        const bool plain = work.ids.empty() && !work.draft && !work.look && !work.logits && plain_row(s, work) && s.params.judge != Judge::kOff;
        bool sure = false;
        if (!engine_.speculates() || !plain || s.params.selector != spec::Selector::kWalk || block < 2 || most < 1 || !hint(s, block, most, sure).ids.empty()) return {};
        blocks.push_back({work.slot, s.history.ids().back(), block, std::min(most + 1, verified_rows(s, block))});
        drafted += block;
    }
    if (drafted > engine_.options().max_rows) return {};
    return blocks;
}

// Rows of a block that are verified unseen: as many as have paid so far, but enough to learn more, and in the numbers that steps are launched for.
int Decoder::verified_rows(const Sequence& s, int rows) const {
    constexpr int kLeast = 4;
    if (s.history.ids().size() > static_cast<size_t>(spec::kDeep)) rows = std::min(rows, spec::kDeepRows);
    if (!s.adapts()) return rows;
    spec::Proposal unseen;
    unseen.source = spec::Source::kDrafter;
    unseen.ids.resize(static_cast<size_t>(rows - 1));
    const auto worth = static_cast<unsigned>(s.policy.worth(unseen, costs_, draft_cost(rows)));
    return std::min(rows, static_cast<int>(std::bit_ceil(std::max<unsigned>(kLeast, worth + 1))));
}

void Decoder::speculate(std::vector<Rows>& all, std::span<const Block> blocks) {
    size_t paths = 0, verified = 0;
    for (const Block& block : blocks) paths += static_cast<size_t>(block.rows - 1), verified += static_cast<size_t>(block.verify);
    path_.resize(paths), best_.resize(verified);
    engine_.speculate(blocks, path_.data(), best_.data());
    const int32_t* path = path_.data();
    size_t at = 0;
    for (size_t i = 0; i < all.size(); path += blocks[i++].rows - 1) {
        Rows& rows = all[i];
        const int32_t* end = std::find(path, path + blocks[i].verify - 1, -1);
        rows.proposal.ids.assign(path, end);
        rows.proposal.source = end == path ? spec::Source::kNone : spec::Source::kDrafter;
        rows.proposal.asked = blocks[i].rows;
        rows.ids.assign(static_cast<size_t>(blocks[i].verify), 0);  // as many as the slot keeps some of
        rows.at = at, rows.judged = static_cast<size_t>(blocks[i].verify);
        at += rows.judged;
    }
}

// Our own proposals, for the decodes that bring none.
void Decoder::draft(std::vector<Rows>& all) {
    std::vector<std::pair<int, int>> asked;
    for (const Rows& rows : all)
        if (rows.work->ids.empty() && !rows.work->draft) asked.emplace_back(rows.work->slot, rows.work->limit);
    std::vector<spec::Proposal> proposals = propose(asked);
    size_t next = 0;
    for (Rows& rows : all) {
        if (!rows.work->ids.empty()) continue;
        if (!rows.work->draft) rows.proposal = std::move(proposals[next++]);
        rows.ids = {rows.sequence->history.ids().back()};
        rows.ids.insert(rows.ids.end(), rows.proposal.ids.begin(), rows.proposal.ids.end());
    }
}

// A request that leaves no token to choose ends alone; the other sequences of the step go on.
StepResult Decoder::judge_or_end(Rows& rows) {
    try {
        return judge(rows);
    } catch (const Error& error) {
        if (error.kind() != Kind::kRequest) throw;
        end(rows.work->slot);
        StepResult result{rows.work->slot};
        result.error = error.text();
        return result;
    }
}

// Row by row: what the sequence says there, until a drafted token is another one, an end token, or the limit.
StepResult Decoder::judge(Rows& rows) {
    StepResult result{rows.work->slot};
    if (rows.judged == 0) return result;
    Sequence& s = *rows.sequence;
    const std::vector<int32_t>& drafted = rows.proposal.ids;
    result.drafted = static_cast<int>(drafted.size());
    result.source = rows.proposal.source;
    const bool plain = plain_row(s, *rows.work);
    for (size_t row = 0; row < rows.judged; row++) {
        const int32_t id = plain ? best_[rows.at + row] : decide(rows, row, result);
        result.token_ids.push_back(id);
        s.counts.add(id);
        const bool same = row < drafted.size() && id == drafted[row];
        result.accepted += same;
        if (rows.work->logits) {
            const auto vocab = static_cast<size_t>(engine_.config().vocab);
            const float* logits = logits_.data() + (rows.at + row) * vocab;
            result.logits.insert(result.logits.end(), logits, logits + vocab);
        }
        if (!same || is_end(s, id) || static_cast<int>(result.token_ids.size()) == rows.work->limit) break;
    }
    return result;
}

int32_t Decoder::decide(const Rows& rows, size_t row, StepResult& result) {
    const Sequence& s = *rows.sequence;
    const SequenceParams& p = s.params;
    const size_t vocab = static_cast<size_t>(engine_.config().vocab), words = (vocab + 31) / 32;
    const float* raw = logits_.data() + (rows.at + row) * vocab;
    row_.assign(raw, raw + vocab);
    s.counts.apply(p.penalties, row_.data());
    if (!rows.work->masks.empty()) spec::apply_mask({rows.work->masks.data() + row * words, words}, row_.data(), vocab);
    const size_t out = result.token_ids.size();
    if (s.emitted() + static_cast<int>(out) < p.min_tokens)
        for (const int32_t id : p.end_ids) row_[static_cast<size_t>(id)] = -INFINITY;
    const uint32_t position = static_cast<uint32_t>(s.history.ids().size() + out);  // of the token in its sequence
    const spec::Distribution law = spec::distribution(row_.data(), vocab, p.sampling);
    const bool drafted = p.judge == Judge::kReject && row < rows.proposal.ids.size();
    const int32_t id = drafted ? spec::accept_or_draw(law, rows.proposal, row, p.sampling.seed, position, p.choice) : spec::draw(law, p.sampling.seed, position, p.choice);
    if (p.logprobs >= 0) result.logprobs.push_back(spec::logprobs(raw, vocab, id, static_cast<size_t>(p.logprobs)));
    return id;
}

// Takes what was judged into the sequence, and notes what its slot keeps of the rows that were not committed.
void Decoder::keep(Rows& rows, const StepResult& result, std::vector<Kept>& kept) {
    Sequence& s = *rows.sequence;
    if (rows.work->look) {
        for (const int32_t id : result.token_ids) s.counts.remove(id);
        return;
    }
    s.history.append(result.token_ids);
    if (!rows.work->ids.empty()) return;
    if (rows.ids.size() > 1) kept.push_back({rows.work->slot, static_cast<int>(result.token_ids.size())});
    const size_t length = s.history.ids().size();
    s.lookup.learn(rows.proposal.source, result.accepted, length);
    if (rows.proposal.asked || rows.proposal.source == spec::Source::kLookup) {
        const double cost = draft_cost(rows.proposal.asked) + costs_.of(static_cast<int>(rows.ids.size()));
        s.policy.learn(rows.proposal, cost, result.accepted, static_cast<int>(result.token_ids.size()), length);
    }
}

// Positions of a prompt that no block will see, a slot.
std::vector<int> Decoder::context_from() const {
    std::vector<int> from(sequences_.size());
    const int window = engine_.drafts() ? engine_.drafter().widest_window() : 0;
    for (size_t slot = 0; slot < sequences_.size(); slot++)
        if (window && sequences_[slot]) from[slot] = std::max(0, static_cast<int>(sequences_[slot]->prompt) - window + 1);
    return from;
}

}  // namespace lucebox::engine
