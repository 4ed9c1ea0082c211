// Options against limits and memory: what a load would take and whether it fits.
#pragma once
#include "engine/engine.h"

namespace lucebox::engine {

// Checks the options and fills in their defaults; throws kRequest.
model::Shape check_options(Options& options, const model::Config& config);
// Bytes that this process may still allocate: what the system calls available, or less under a control group's limit.
uint64_t free_memory();
// Throws kOutOfMemory with the plan's table if its allocated bytes do not fit.
void check_fits(const std::vector<ops::PlanEntry>& plan);

}  // namespace lucebox::engine
