// What the decoder knows of one running sequence.
#pragma once
#include "spec/logprobs.h"
#include "spec/lookup.h"
#include "spec/penalties.h"
#include "spec/policy.h"
#include "spec/selector.h"
#include <optional>

namespace lucebox::engine {

// How drafts are judged. kMatch: a draft is kept if it is the token that plain decoding draws there, so the output for a seed is that of plain
// decoding. kReject: kept with probability min(1, p / q), otherwise the token comes from the residual: the same law, more kept, another text.
enum class Judge { kOff, kMatch, kReject };

struct SequenceParams {
    spec::SamplingParams sampling;
    spec::PenaltyParams penalties;
    uint32_t choice = 0;              // which of the `n` replies to a prompt, part of the random numbers' counter
    std::vector<int32_t> end_ids;     // nothing is emitted behind one of them
    int min_tokens = 0;               // of the output, before which no end token may come
    int logprobs = -1;                // -1: none; else the log-probability of each token and of so many best ones
    Judge judge = Judge::kMatch;
    bool lookup = true;               // drafts from the sequence's own history
    bool adaptive = true;             // as many rows as pay, and a drafter that pauses where it does not; never with kReject and a temperature
    int draft_width = 0;              // rows of a block, the anchor included; 0: the engine's
    spec::Selector selector = spec::Selector::kWalk;
};

struct Sequence {
    SequenceParams params;
    spec::History history;            // prompt, then what was emitted
    spec::TokenCounts counts;
    size_t prompt = 0;                // tokens of it
    spec::LookupPolicy lookup;
    spec::DraftPolicy policy;

    // Whether a drafted token is drawn, and judged by its distribution: what is verified must then not depend on it.
    bool draws() const { return params.judge == Judge::kReject && params.sampling.temperature > 0; }
    bool adapts() const { return params.adaptive && !draws(); }
    int emitted() const { return static_cast<int>(history.ids().size() - prompt); }
};

}  // namespace lucebox::engine
