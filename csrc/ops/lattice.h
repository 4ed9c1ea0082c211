// lattice: scores of the selector's edges, score_i(b | a) = value_i(b) + sum over r of (A[a, r] * g_i[r]) * B[b, r]
//   in   g [count, rank] f32 · id, value [count, 16] of ops/top_k.h for rows want[0 .. count - 1] of the batch · A, B [vocab, rank] any matrix type
//   out  edge [count, 16 predecessors, 16 candidates] f32: predecessors of a row are the candidates of the row before it; of a span's second row the
//        one token of its first row, at predecessor 0
//   count 1..128 · rank 1..1024 · k as in top_k · without A (a drafter of version 1): edge = value whatever the predecessor
//   order: the product A * g is rounded; lane_sum (ops/norm.h) of it times B; value + sum · work: lattice_work · async, may be captured
//   cost: count * 2 * k rows of the codebooks + count * k * k * rank multiply-adds
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Lattice {
    const Batch* batch;
    int count, rank, k;
    const float* g;        // [count, rank]
    const int32_t* id;     // [count, kCandidates]
    const float* value;    // [count, kCandidates]
    Weight predecessor;    // [vocab, rank]; data null: none
    Weight successor;
    float* edge;           // [count, kCandidates, kCandidates]
    float* work;           // [lattice_work(count, rank)]
};

constexpr uint64_t lattice_work(int count, int rank) {
    return static_cast<uint64_t>(count) * static_cast<uint64_t>(kCandidates) * (2 * static_cast<uint64_t>(rank) + 1);
}

// Whether row `row` of the batch follows the first row of its span, and so has one predecessor.
inline bool follows_anchor(const Batch& batch, int row) {
    for (int s = 0; s < batch.spans; s++)
        if (batch.span[s].first == row - 1) return true;
    return false;
}
}  // namespace lucebox::ops
