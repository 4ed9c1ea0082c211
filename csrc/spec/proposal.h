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
};

}  // namespace lucebox::spec
