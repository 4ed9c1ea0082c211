// draft_conv: grouped dynamic causal convolution of two taps inside each span of a drafter's batch
//   in   x [rows, hidden] f32 · delta [rows, 2 sides, 2 taps, hidden / group] f32 · base [2 sides, 2 taps, hidden] f32, tap 0 = the row itself
//   out  y [rows, hidden] as Acts, or h [rows, hidden] += the result
//   rows 1..128 · hidden a multiple of 32 and of group, at most 16384 · x and y may not overlap
//   order: fma(base1 + delta1, x[i - 1], (base0 + delta0) * x[i]); x before a span's first row is +0, no term is skipped; int8 by quantize (ops/norm.h)
//   work: none · async, may be captured · cost: rows * hidden * 17 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct DraftConv {
    const Batch* batch;
    int rows;
    int hidden, group, side;
    const float* x;      // [rows, hidden]
    const float* delta;  // [rows, 2, 2, hidden / group]
    const float* base;   // [2, 2, hidden]
    float* h;            // [rows, hidden]: h += the result; null: y takes it
    Acts y;              // [rows, hidden]
};
}  // namespace lucebox::ops
