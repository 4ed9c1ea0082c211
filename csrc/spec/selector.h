// The candidate selector: from a drafter's candidates and the scores of the edges between them to one path (ops/lattice.h).
#pragma once
#include "spec/proposal.h"
#include <string>

namespace lucebox::spec {

// walk: at each row the best edge from the token chosen before. best-first: the path whose product of probabilities is the largest. reach: the path
// with the largest expected number of accepted tokens.
enum class Selector { kWalk, kBestFirst, kReach };
Selector selector_named(const std::string& name);  // Error(kRequest) that lists the names

// Rows of one block behind its anchor.
struct Lattice {
    static constexpr int kStride = 16;
    const int32_t* id;   // [rows, 16], the first k of each; -1: the row is no number
    const float* edge;   // [rows, 16 predecessors, 16 candidates]; the first row has predecessor 0 alone
    int rows, k;

    const float* edges(int row, int predecessor) const { return edge + (row * kStride + predecessor) * kStride; }
};

// A path from the first row on, and its confidence: the probability, among the k candidates, of each token behind the one before. Ends in front of a
// row that is no number. Ties go to the lower candidate.
Proposal select(const Lattice& lattice, Selector selector);
// Tokens drawn by edge scores / temperature, row i at position + i; the distribution of each is kept, for acceptance with min(1, p / q).
Proposal draw(const Lattice& lattice, double temperature, uint64_t seed, uint32_t position, uint32_t choice);

}  // namespace lucebox::spec
