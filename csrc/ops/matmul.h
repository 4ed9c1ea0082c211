// matmul: y[r, n] = sum over k of W[n, k] * x[r, k], for several weights of one input; epilogue: store, or h + y
//   in   acts [rows, k] · weights [n, k] any matrix type       out  y [rows, n] f32 each (the residual is added to y in place)
//   rows 1..128 · k a multiple of 32 and of the type's block, at most 262144 · n at least 1, need not be a multiple of anything · 1..4 weights
//   order: 32 values are integer, P = sum of scale * dot, |P| < 2^24. 256-value types: in a block f = fma(d_a, float(P), f) over its eight 32s from
//     +0, acc = fma(d_w, f, acc); with minimum g = fma(float(m), d_a * float(sum), g) likewise (Q2_K per 16), acc = fma(-dmin, g, acc).
//     32-value types: acc = fma(d_w * d_a, float(P), acc), then with minimum acc = fma(m_w, d_a * float(sum), acc).
//     Blocks of a segment of 1,024 columns in order from +0; segment sums in order, starting from the first.
//     F32, F16, BF16: lane_sum of weight times the unrounded row (ops/norm.h). A row does not depend on the others.
//   work: none · async, may be captured · cost: the weights' bytes + rows * (k * 1.3 + n * 4)
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Matmul {
    Acts acts;
    int rows;
    int weights;
    Weight weight[4];
    float* y[4];       // [rows, weight.rows]
    bool residual;     // y += product instead of y = product
};
}  // namespace lucebox::ops
