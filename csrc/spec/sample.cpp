#include "spec/sample.h"
#include "error.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lucebox::spec {

namespace {

struct Candidate {
    float logit;
    int32_t id;
};
bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The first `count` candidates in order.
std::vector<Candidate> ordered(const float* logits, size_t vocab, size_t count) {
    std::vector<Candidate> all;
    all.reserve(vocab);
    for (size_t i = 0; i < vocab; i++) {
        LUCE_CHECK(logits[i] == logits[i], kDevice, "logit ", i, " is NaN");
        if (logits[i] != -INFINITY) all.push_back({logits[i], static_cast<int32_t>(i)});
    }
    LUCE_CHECK(!all.empty(), kRequest, "no token is left to choose: mask, bias and minimum length forbid all of them");
    count = std::min(count, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(count), all.end(), before);
    all.resize(count);
    return all;
}

}  // namespace

void check(const SamplingParams& p) {
    LUCE_CHECK(p.temperature >= 0 && p.temperature <= 100, kRequest, "temperature is ", p.temperature, "; it may be 0 (greedy) to 100");
    LUCE_CHECK(p.top_k >= 0, kRequest, "top_k is ", p.top_k, "; it may be 0 (off) or more");
    LUCE_CHECK(p.top_p > 0 && p.top_p <= 1, kRequest, "top_p is ", p.top_p, "; it may be above 0 and up to 1 (off)");
    LUCE_CHECK(p.min_p >= 0 && p.min_p <= 1, kRequest, "min_p is ", p.min_p, "; it may be 0 (off) to 1");
}

// x = n ln2 + r, Taylor in r.
double exp(double x) {
    if (x < -700) return 0;
    const double n = (x * 0x1.71547652b82fep0 + 0x1.8p52) - 0x1.8p52;
    const double r = std::fma(n, -0x1.abc9e3b39803fp-56, std::fma(n, -0x1.62e42fefa39efp-1, x));
    double t = 1;
    for (int k = 18; k > 0; k--) t = 1.0 + r / k * t;
    const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return t * scale;
}

double uniform(uint64_t seed, uint32_t position, uint32_t choice, Purpose purpose) {
    uint32_t c[4] = {position, choice, static_cast<uint32_t>(purpose), 0};
    uint32_t k[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
        const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b), static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1],
                                  static_cast<uint32_t>(a)};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
    }
    return (c[0] >> 8) * 0x1p-24;
}

Distribution distribution(const float* logits, size_t vocab, const SamplingParams& p) {
    check(p);
    const size_t count = p.temperature == 0 ? 1 : p.top_k > 0 ? std::min(vocab, static_cast<size_t>(p.top_k)) : vocab;
    const std::vector<Candidate> candidates = ordered(logits, vocab, count);
    if (candidates.size() == 1) return {{candidates[0].id}, {1}, 1};
    std::vector<double> weight;
    double total = 0;
    for (const Candidate& c : candidates) {
        weight.push_back(exp((static_cast<double>(c.logit) - static_cast<double>(candidates[0].logit)) / p.temperature));
        total += weight.back();
    }
    Distribution kept;
    for (size_t i = 0; i < weight.size() && (i == 0 || (kept.sum < p.top_p * total && weight[i] >= p.min_p)); i++) {
        kept.id.push_back(candidates[i].id), kept.weight.push_back(weight[i]);
        kept.sum += weight[i];
    }
    return kept;
}

double Distribution::probability(int32_t token) const {
    for (size_t i = 0; i < id.size(); i++)
        if (id[i] == token) return weight[i] / sum;
    return 0;
}

int32_t Distribution::at(double u) const {
    const double target = u * sum;
    double below = 0;
    for (size_t i = 0; i < id.size(); i++)
        if ((below += weight[i]) > target) return id[i];
    return id.back();  // rounding of the last sum
}

int32_t draw(const Distribution& law, uint64_t seed, uint32_t position, uint32_t choice) {
    return law.id.size() == 1 ? law.id[0] : law.at(uniform(seed, position, choice, Purpose::kToken));
}

int32_t sample(const float* logits, size_t vocab, const SamplingParams& p, uint32_t position, uint32_t choice) {
    return draw(distribution(logits, vocab, p), p.seed, position, choice);
}

}  // namespace lucebox::spec
