// Tokens that are proposed to follow a sequence, before the target has judged them.
#pragma once
#include "spec/sample.h"

namespace lucebox::spec {

inline constexpr int kMostDrafted = 31;   // tokens of a proposal; with the anchor 32 rows, as many as may be pending (ops/tensor.h)

enum class Source { kNone, kLookup, kDrafter, kBoth, kGiven };
inline const char* to_string(Source s) {
    constexpr const char* names[] = {"none", "lookup", "drafter", "drafter+lookup", "given"};
    return names[static_cast<int>(s)];
}

struct Proposal {
    std::vector<int32_t> ids;
    std::vector<Distribution> drawn_from;  // of each id; empty: every id is a point mass
    std::vector<float> confidence;         // of each drafted id, by the drafter; empty where it has none
    Source source = Source::kNone;
    int asked = 0;                         // rows of the block that the drafter ran for it
    int k = 0;                             // of the next two
    std::vector<int32_t> candidates;       // [ids, k] that the drafter chose each id from; empty where it was not asked
    std::vector<float> scores;             // [ids, k] of them, behind the id before
};

// Leaves the first `most` tokens.
inline void cut(Proposal& p, int most) {
    const auto count = static_cast<size_t>(most);
    if (p.ids.size() > count) p.ids.resize(count);
    if (p.drawn_from.size() > count) p.drawn_from.resize(count);
    if (p.confidence.size() > count) p.confidence.resize(count);
    if (p.candidates.size() > count * static_cast<size_t>(p.k)) p.candidates.resize(count * static_cast<size_t>(p.k)), p.scores.resize(p.candidates.size());
    if (p.ids.empty()) p.source = Source::kNone;
}

// A drafted block whose first two tokens are those of a hint from history takes the whole hint, where that is longer.
inline void extend(Proposal& drafted, const Proposal& hint) {
    if (drafted.ids.size() < 2 || hint.ids.size() <= drafted.ids.size() || !drafted.drawn_from.empty()) return;
    if (drafted.ids[0] != hint.ids[0] || drafted.ids[1] != hint.ids[1]) return;
    drafted.ids = hint.ids;
    drafted.confidence.clear(), drafted.candidates.clear(), drafted.scores.clear();
    drafted.k = 0;
    drafted.source = Source::kBoth;
}

}  // namespace lucebox::spec
