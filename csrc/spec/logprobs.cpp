#include "spec/logprobs.h"
#include "spec/sample.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace lucebox::spec {

TokenLogprobs logprobs(const float* logits, size_t vocab, int32_t token, size_t best) {
    const double top = static_cast<double>(*std::max_element(logits, logits + vocab));
    double sum = 0;
    for (size_t i = 0; i < vocab; i++) sum += exp(static_cast<double>(logits[i]) - top);
    const double base = top + std::log(sum);
    std::vector<int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + static_cast<ptrdiff_t>(std::min(best, vocab));
    std::partial_sort(order.begin(), end, order.end(), [logits](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
    TokenLogprobs out{static_cast<double>(logits[token]) - base, {}};
    for (auto it = order.begin(); it != end; ++it) out.best.emplace_back(*it, static_cast<double>(logits[*it]) - base);
    return out;
}

}  // namespace lucebox::spec
