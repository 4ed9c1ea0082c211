#include "spec/policy.h"
#include <algorithm>

namespace lucebox::spec {

namespace {

constexpr double kFade = 0.9;                  // of what is remembered, a step
constexpr double kMostCredit = 4, kLoss = -3;  // in plain steps: what gains may save for losses, and the loss that ends in a pause
constexpr size_t kFirstPause = 32, kLongestPause = 1024;

constexpr Costs::Point kCachedPoints[] = {{1, 1.0}, {2, 1.15}, {3, 1.5}, {4, 1.8}, {6, 2.6}, {8, 3.35}, {12, 4.85}, {16, 6.9}, {32, 14.0}};
constexpr Costs::Point kCpuPoints[] = {{1, 1.0}, {2, 1.05}, {4, 1.25}, {6, 1.85}, {8, 2.35}, {12, 3.5}, {16, 5.0}, {32, 10.0}};
constexpr Costs::Point kGpuPoints[] = {{1, 1.0}, {2, 1.1}, {4, 1.2}, {8, 1.28}, {16, 1.41}, {32, 2.0}};

}  // namespace

double Costs::of(int rows) const {
    size_t i = 1;
    while (i + 1 < points_.size() && points_[i].rows < rows) i++;
    const Point &a = points_[i - 1], &b = points_[i];
    return a.cost + (b.cost - a.cost) * (rows - a.rows) / (b.rows - a.rows);
}

Costs costs_of(Machine machine) {
    switch (machine) {
        case Machine::kCached: return Costs(kCachedPoints);
        case Machine::kCpu: return Costs(kCpuPoints);
        case Machine::kGpu: break;
    }
    return Costs(kGpuPoints);
}

// That token `at` of a proposal is accepted if those before it are.
double DraftPolicy::chance(const Proposal& p, size_t at) const {
    if (p.confidence.empty()) {
        const Rate& rate = of_drafter(p) ? unseen_ : looked_up_;
        return (rate.hits + 4) / (rate.tries + 5);
    }
    return static_cast<double>(p.confidence[at]);
}

int DraftPolicy::worth(const Proposal& p, const Costs& costs, double spent) const {
    // Confidence promises too much or too little; by how much is learned as the text goes on.
    const double truth = p.confidence.empty() ? 1.0 : std::min((accepted_ + 2) / (expected_ + 2), 2.0);
    double reach = 1, tokens = 1, best = 1 / (spent + costs.of(1));
    int worth = 0;
    for (size_t i = 0; i < p.ids.size(); i++) {
        reach *= chance(p, i);
        tokens += std::min(1.0, reach * truth);
        const double rate = tokens / (spent + costs.of(static_cast<int>(i) + 2));
        if (rate > best) best = rate, worth = static_cast<int>(i) + 1;
    }
    return worth;
}

void DraftPolicy::learn(const Proposal& p, double cost, int accepted, int tokens, size_t length) {
    const int drafted = static_cast<int>(p.ids.size());
    if (drafted > 0 && p.confidence.empty()) {
        Rate& rate = of_drafter(p) ? unseen_ : looked_up_;
        rate.tries = rate.tries * kFade + std::min(drafted, accepted + 1);
        rate.hits = rate.hits * kFade + accepted;
    } else if (drafted > 0) {
        double reach = 1, sum = 0;
        for (const float confidence : p.confidence) sum += reach *= static_cast<double>(confidence);
        expected_ = expected_ * kFade + sum;
        accepted_ = accepted_ * kFade + accepted;
    }
    if (p.source == Source::kLookup || p.source == Source::kGiven) return;
    balance_ = std::min(balance_ + tokens - cost, kMostCredit);
    if (balance_ > kMostCredit / 2) pause_ = 0;
    if (balance_ > kLoss) return;
    pause_ = pause_ ? std::min(2 * pause_, kLongestPause) : kFirstPause;
    paused_until_ = length + pause_;
    balance_ = kLoss / 2;
    pauses_++;
}

}  // namespace lucebox::spec
