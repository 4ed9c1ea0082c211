#include "spec/accept.h"
#include <algorithm>

namespace lucebox::spec {

namespace {

// q(token) of the distribution that the row's token was drawn from.
double drafted_probability(const Proposal& proposal, size_t row, int32_t token) {
    if (proposal.drawn_from.empty()) return token == proposal.ids[row] ? 1 : 0;
    return proposal.drawn_from[row].probability(token);
}

// max(0, p - q), or p itself if rounding leaves nothing.
Distribution residual(const Distribution& law, const Proposal& proposal, size_t row) {
    Distribution rest;
    for (size_t i = 0; i < law.id.size(); i++) {
        const double weight = std::max(0.0, law.weight[i] / law.sum - drafted_probability(proposal, row, law.id[i]));
        if (weight == 0) continue;
        rest.id.push_back(law.id[i]), rest.weight.push_back(weight);
        rest.sum += weight;
    }
    return rest.id.empty() ? law : rest;
}

}  // namespace

int32_t accept_or_draw(const Distribution& law, const Proposal& proposal, size_t row, uint64_t seed, uint32_t position, uint32_t choice) {
    const int32_t drafted = proposal.ids[row];
    const double u = uniform(seed, position, choice, Purpose::kAccept);
    if (u * drafted_probability(proposal, row, drafted) < law.probability(drafted)) return drafted;
    return residual(law, proposal, row).at(uniform(seed, position, choice, Purpose::kResidual));
}

}  // namespace lucebox::spec
