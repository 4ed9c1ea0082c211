// tap: out[r, offset + i] = h[r, i], a NaN as 0 and the rest clamped to -65504 .. 65504; what a drafter sees of the target
//   in   h [rows, hidden] f32                     out  out [rows, columns] f32, columns offset .. offset + hidden - 1 · mended [rows] i32 += values changed
//   rows 1..128 · order: none · work: none · async, may be captured · cost: rows * hidden * 8 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Tap {
    const float* h;  // [rows, hidden]
    int rows, hidden;
    float* out;      // [rows, columns]
    int columns, offset;
    int32_t* mended; // [rows]
};
}  // namespace lucebox::ops
