// Sampling: one form, f64 on the host with our own exp, so that a seed gives the same tokens on every machine (docs/numerics.md).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

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

// Philox4x32-10, key = seed, counter = (position, choice, purpose, 0): a uniform number in [0, 1) of 24 bits. What a number is drawn for is part of
// the counter: numbers shared by two purposes would bias the law.
enum class Purpose : uint32_t { kToken = 0, kDraft = 1, kAccept = 2, kResidual = 3 };
double uniform(uint64_t seed, uint32_t position, uint32_t choice, Purpose purpose);

// Tokens that may be drawn, in (logit descending, id ascending) order, with weights that need not sum to one.
struct Distribution {
    std::vector<int32_t> id;
    std::vector<double> weight;
    double sum = 0;

    double probability(int32_t token) const;  // 0 for a token that is not in it
    int32_t at(double u) const;               // the token at u in [0, 1) of the cumulative sum
};

// Candidates in order; temperature, then top_k, top_p (the smallest set that reaches it), min_p (of the largest probability). Greedy, or one candidate:
// a point mass. A logit of -inf is no candidate. Throws Error(kDevice) if a logit is NaN, Error(kRequest) if none is left.
Distribution distribution(const float* logits, size_t vocab, const SamplingParams& params);
// The token that plain decoding draws: at(uniform(kToken)).
int32_t draw(const Distribution& law, uint64_t seed, uint32_t position, uint32_t choice);
// One token id: distribution().at(uniform(kToken)).
int32_t sample(const float* logits, size_t vocab, const SamplingParams& params, uint32_t position, uint32_t choice);

double exp(double x);  // x <= 0; below -700: +0

}  // namespace lucebox::spec
