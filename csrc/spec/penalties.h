// What a request adds to its logits before sampling: penalties by the tokens so far, a bias, an allowed set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lucebox::spec {

struct PenaltyParams {
    double repetition = 1;               // of tokens in prompt and output: a logit above 0 is divided by it, another multiplied
    double presence = 0, frequency = 0;  // of tokens in the output: once, and for each time
    std::vector<std::pair<int32_t, float>> bias;  // added to the logits of these ids

    bool penalises() const { return repetition != 1 || presence != 0 || frequency != 0; }
    bool none() const { return !penalises() && bias.empty(); }
};
// Throws Error(kRequest) that names the value and its range.
void check(const PenaltyParams& params, int vocab);

// How often each token has occurred. Drafted tokens are added while a block is judged and removed where it ends.
class TokenCounts {
public:
    void add_prompt(int32_t id) { counts_[id].prompt++; }
    void add(int32_t id) { counts_[id].output++; }
    void remove(int32_t id) { counts_[id].output--; }
    // Penalties, then the bias, in f64 and rounded once each to f32.
    void apply(const PenaltyParams& params, float* logits) const;

private:
    struct Count {
        int prompt = 0, output = 0;
    };
    std::unordered_map<int32_t, Count> counts_;
};

// Logits of ids whose bit is 0 become -inf. bits [(vocab + 31) / 32].
void apply_mask(std::span<const uint32_t> bits, float* logits, size_t vocab);

}  // namespace lucebox::spec
