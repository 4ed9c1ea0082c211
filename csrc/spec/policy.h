// How much to draft. All of it follows from the sequence's own steps and from a fixed table of costs, never from a clock, so that a prompt gives the
// same steps every time; and what it decides never changes a text that is judged by matching (docs/speculation.md).
#pragma once
#include "spec/proposal.h"
#include <span>

namespace lucebox::spec {

// What a pass over so many rows costs, in passes over one row: points of a line, rows ascending from 1.
class Costs {
public:
    struct Point {
        int rows;
        double cost;
    };
    explicit Costs(std::span<const Point> points) : points_(points) {}
    double of(int rows) const;

private:
    std::span<const Point> points_;
};
// The tables, as measured (docs/speculation.md): kCached where a step's weights stay in the processor's caches.
enum class Machine { kCached, kCpu, kGpu };
Costs costs_of(Machine machine);

inline constexpr int kDeep = 8192, kDeepRows = 8;  // rows that are verified at most behind so many tokens: attention's cost grows with rows there

// Of one sequence.
class DraftPolicy {
public:
    // Whether the drafter is worth asking at this many tokens: after losses it pauses, longer each time.
    bool asks(size_t tokens) const { return tokens >= paused_until_; }
    // Tokens of the proposal that are worth verifying, 0 to all. spent: cost of the draft itself.
    int worth(const Proposal& proposal, const Costs& costs, double spent) const;
    // What a step with this proposal cost, in plain steps, and gave.
    void learn(const Proposal& proposal, double cost, int accepted, int tokens, size_t length);

    int pauses() const { return pauses_; }

private:
    struct Rate {  // of tokens without a confidence, fading
        double tries = 0, hits = 0;
    };
    double chance(const Proposal& proposal, size_t at) const;
    static bool of_drafter(const Proposal& p) { return p.source == Source::kDrafter; }

    double expected_ = 0, accepted_ = 0;  // of drafted blocks, by confidence and in fact, fading
    Rate looked_up_, unseen_;             // unseen: of drafted blocks that were verified in one go
    double balance_ = 0;                  // tokens that the drafter gave beyond what its steps cost
    size_t paused_until_ = 0, pause_ = 0;
    int pauses_ = 0;
};

}  // namespace lucebox::spec
