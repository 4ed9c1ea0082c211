// norm: y = q8(x * r * w), r = 1 / sqrt(lane_sum(x^2) / hidden + eps)
//   in   x [rows, hidden] f32 · w [hidden] f32 · select [count] i32 or null (all rows in order)
//   out  y [count, hidden] as Acts (f32, int8, scales, sums)
//   count 1..128 · hidden a multiple of 32, at most 16384 · x and y may not overlap
//   order: lane_sum (below); a row does not depend on the others; int8 by quantize
//   work: none · async, may be captured · cost: count * hidden * 9 bytes
//
// lane_sum: segments of 1,024; in one, lane l of 32 adds elements l, l + 32, ... by fma from +0; lanes by the exchange tree 16, 8, 4, 2, 1;
//   segment sums in order, starting from the first.
// quantize, per 32 values: amax = max |x|; d = amax / 127, q = round_half_even(x * (127 / amax)); amax < 2^-100: d = 0, q = 0;
//   a NaN or Inf among them: d = NaN, q = 0.
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Norm {
    const float* x;         // [rows, hidden]
    const float* weight;    // [hidden]
    const int32_t* select;  // [count] or null
    int count, hidden;
    float eps;
    Acts y;                 // [count, hidden]
};
}  // namespace lucebox::ops
