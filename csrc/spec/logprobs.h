// Log-probabilities of raw logits, f64: what OpenAI's `logprobs` and `top_logprobs` report.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lucebox::spec {

struct TokenLogprobs {
    double logprob;                                 // of the token itself
    std::vector<std::pair<int32_t, double>> best;   // the most probable, in (logit descending, id ascending) order
};
TokenLogprobs logprobs(const float* logits, size_t vocab, int32_t token, size_t best);

}  // namespace lucebox::spec
