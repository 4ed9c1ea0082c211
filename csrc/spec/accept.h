// Speculative sampling: a drafted token x is kept with probability min(1, p(x) / q(x)), else the token comes from max(0, p - q), so that what comes out
// follows p, whatever drafted it.
#pragma once
#include "spec/proposal.h"

namespace lucebox::spec {

// The token of row `row` of a proposal: its drafted one, or another from the residual. law: p. Each number has a purpose of its own.
int32_t accept_or_draw(const Distribution& law, const Proposal& proposal, size_t row, uint64_t seed, uint32_t position, uint32_t choice);

}  // namespace lucebox::spec
