#include "spec/penalties.h"
#include "error.h"
#include <cmath>

namespace lucebox::spec {

void check(const PenaltyParams& p, int vocab) {
    LUCE_CHECK(p.repetition > 0 && p.repetition <= 10, kRequest, "repetition_penalty is ", p.repetition, "; it may be above 0 and up to 10, 1 is off");
    LUCE_CHECK(std::abs(p.presence) <= 100, kRequest, "presence_penalty is ", p.presence, "; it may be -100 to 100, 0 is off");
    LUCE_CHECK(std::abs(p.frequency) <= 100, kRequest, "frequency_penalty is ", p.frequency, "; it may be -100 to 100, 0 is off");
    for (const auto& [id, bias] : p.bias) {
        LUCE_CHECK(id >= 0 && id < vocab, kRequest, "logit_bias names token id ", id, "; the vocabulary has ids 0 to ", vocab - 1);
        LUCE_CHECK(std::abs(bias) <= 1000 || bias == -INFINITY, kRequest, "logit_bias of token ", id, " is ", bias, "; it may be -1000 to 1000, or -inf to forbid it");
    }
}

void TokenCounts::apply(const PenaltyParams& p, float* logits) const {
    if (p.penalises())
        for (const auto& [id, count] : counts_) {
            double x = static_cast<double>(logits[id]);
            if (p.repetition != 1 && count.prompt + count.output > 0) x = x > 0 ? x / p.repetition : x * p.repetition;
            if (count.output > 0) x = x - p.presence - p.frequency * count.output;
            logits[id] = static_cast<float>(x);
        }
    for (const auto& [id, bias] : p.bias) logits[id] = logits[id] + bias;
}

void apply_mask(std::span<const uint32_t> bits, float* logits, size_t vocab) {
    for (size_t i = 0; i < vocab; i++)
        if (!(bits[i / 32] >> (i % 32) & 1)) logits[i] = -INFINITY;
}

}  // namespace lucebox::spec
