// Options against limits and memory: what a load would take and whether it fits.
#pragma once
#include "engine/engine.h"

namespace lucebox::engine {

// Checks the options and fills in their defaults; throws kRequest.
model::Shape check_options(Options& options, const model::Config& config);
// Throws kOutOfMemory with the plan's table if its allocated bytes are more than `free`.
void check_fits(const std::vector<ops::PlanEntry>& plan, uint64_t free);

}  // namespace lucebox::engine
