// History lookup: what followed the last time that the sequence's latest tokens occurred in it. History is prompt and emitted tokens only.
#pragma once
#include "spec/proposal.h"
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace lucebox::spec {

class History {
public:
    static constexpr int kLeast = 3, kMost = 32;  // tokens of a suffix that is looked for
    static constexpr int kTries = 256;            // latest occurrences of the last kLeast tokens that are compared

    struct Match {
        int length = 0;                   // of the suffix that occurred before, 0 = none
        std::span<const int32_t> next;    // what followed it; never empty with a match; valid until the next append
    };

    void append(int32_t id);
    void append(std::span<const int32_t> ids) {
        for (const int32_t id : ids) append(id);
    }
    const std::vector<int32_t>& ids() const { return ids_; }
    // The longest suffix of at most kMost tokens that occurred before; of equal ones the latest.
    Match find() const;

private:
    uint64_t key(size_t end) const;

    std::vector<int32_t> ids_;
    std::vector<int32_t> before_;                 // [ids]: end of the occurrence of the same kLeast tokens before this one, -1 = none
    std::unordered_map<uint64_t, int32_t> last_;  // their latest end
};

// When a match is worth a draft. Two lookups in a row of which nothing was accepted ask for long matches for a while.
class LookupPolicy {
public:
    static constexpr int kAlone = 8;         // a match that is taken without asking the drafter
    static constexpr int kWary = 16;         // what a match needs after two misses ...
    static constexpr size_t kWaryTokens = 32;  // ... for so many tokens

    int least(size_t tokens) const { return tokens < wary_until_ ? kWary : History::kLeast; }
    void learn(Source source, int accepted, size_t tokens) {
        if (source != Source::kLookup) return;
        misses_ = accepted ? 0 : misses_ + 1;
        if (misses_ < 2) return;
        misses_ = 0, wary_until_ = tokens + kWaryTokens;
    }

private:
    int misses_ = 0;
    size_t wary_until_ = 0;
};

inline constexpr int kMostLookup = 15;  // tokens of a continuation that are proposed

// What history proposes behind a match: at most `most` tokens, and at most kMostLookup; empty without one.
Proposal look_up(const History::Match& match, int most);

}  // namespace lucebox::spec
