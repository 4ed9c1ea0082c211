#include "spec/lookup.h"
#include <algorithm>

namespace lucebox::spec {

// Of the kLeast tokens that end in front of `end`: 21 bits each, so no two triples of a vocabulary below 2^21 share a key.
uint64_t History::key(size_t end) const {
    uint64_t k = 0;
    for (size_t i = end - kLeast; i < end; i++) k = k << 21 | static_cast<uint64_t>(ids_[i]);
    return k;
}

void History::append(int32_t id) {
    ids_.push_back(id);
    before_.push_back(-1);
    if (ids_.size() < kLeast) return;
    const auto [at, fresh] = last_.try_emplace(key(ids_.size()), static_cast<int32_t>(ids_.size()));
    if (fresh) return;
    before_.back() = at->second;
    at->second = static_cast<int32_t>(ids_.size());
}

History::Match History::find() const {
    Match best;
    const size_t n = ids_.size();
    if (n < kLeast) return best;
    int32_t end = before_.back();
    for (int tries = 0; end >= 0 && tries < kTries && best.length < kMost; tries++, end = before_[static_cast<size_t>(end) - 1]) {
        const size_t e = static_cast<size_t>(end);
        int length = kLeast;
        while (length < kMost && static_cast<size_t>(length) < e && ids_[e - 1 - static_cast<size_t>(length)] == ids_[n - 1 - static_cast<size_t>(length)]) length++;
        if (length > best.length) best = {length, std::span(ids_).subspan(e)};
    }
    return best;
}

Proposal look_up(const History::Match& match, int most) {
    if (match.length == 0 || most <= 0) return {};
    const auto next = match.next.first(std::min(match.next.size(), static_cast<size_t>(std::min(most, kMostLookup))));
    Proposal out;
    out.ids = {next.begin(), next.end()};
    out.source = Source::kLookup;
    return out;
}

}  // namespace lucebox::spec
