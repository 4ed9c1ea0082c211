// Sampling: one form, f64 on the host with our own exp, so that a seed gives the same tokens on every machine (docs/numerics.md).
#pragma once
#include <cstddef>
#include <cstdint>

namespace lucebox::spec {

// temperature 0 = greedy; top_k 0, top_p 1, min_p 0 = off.
struct SamplingParams {
    double temperature = 0;
    int64_t top_k = 0;
    double top_p = 1, min_p = 0;
    uint64_t seed = 0;
};
// Throws Error(kRequest) that names the value and its range.
void check(const SamplingParams& params);

// Philox4x32-10, key = seed, counter = (position, choice, purpose, 0): a uniform number in [0, 1) of 24 bits.
enum class Purpose : uint32_t { kToken = 0 };
double uniform(uint64_t seed, uint32_t position, uint32_t choice, Purpose purpose);

// One token id. Candidates in (logit descending, id ascending) order; temperature, then top_k, top_p (the smallest set that reaches it), min_p (of
// the largest probability), then the inverse of the cumulative sum. Throws Error(kDevice) if a logit is NaN.
int32_t sample(const float* logits, size_t vocab, const SamplingParams& params, uint32_t position, uint32_t choice);

double exp(double x);  // x <= 0; below -700: +0

}  // namespace lucebox::spec
