// walk: from a drafter's candidates to the tokens that the target verifies, a span a block: at each row the best edge from the token chosen before
//   in   id [rows, 16], edge [rows, 16, 16] of ops/lattice.h, for the rows that the draft's batch wants
//   out  path [rows] i32, the tokens; -1 from the first row of a span on that has an edge or a candidate which is no number · the rows behind the first
//        of each span of `verify`, which has the draft's spans in its order with no more rows each: their tokens, 0 for -1
//   1 <= k <= 16 · order: ties go to the lower candidate · work: none · async, may be captured · cost: rows * k * k * 4 bytes
#pragma once
#include "ops/math.h"
#include "ops/tensor.h"

namespace lucebox::ops {
struct Walk {
    const Batch* draft;
    Batch* verify;
    int k;
    const int32_t* id;  // [rows, kCandidates]
    const float* edge;  // [rows, kCandidates, kCandidates]
    int32_t* path;      // [rows]
};

// Whether a row's candidates and its edges from so many predecessors are numbers.
inline bool row_is_usable(const int32_t* id, const float* edge, int predecessors, int k) {
    for (int b = 0; b < k; b++) {
        if (id[b] < 0) return false;
        for (int a = 0; a < predecessors; a++)
            if (const float x = edge[a * kCandidates + b]; !(x - x == 0.0f)) return false;
    }
    return true;
}
// The first of the largest.
inline int best_edge(const float* edges, int k) {
    int best = 0;
    for (int b = 1; b < k; b++)
        if (edges[b] > edges[best]) best = b;
    return best;
}
}  // namespace lucebox::ops
