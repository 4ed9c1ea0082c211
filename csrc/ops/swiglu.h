// swiglu: y = q8(SiLU(gate) * up)
//   in   gate, up [rows, ff] f32                                  out  y [rows, ff] as Acts
//   rows 1..128 · ff a multiple of 32
//   order: one product an element; int8 by quantize (ops/norm.h)
//   work: none · async, may be captured · cost: rows * ff * 13 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Swiglu {
    const float* gate;  // [rows, ff]
    const float* up;    // [rows, ff]
    int rows, ff;
    Acts y;             // [rows, ff]
};
}  // namespace lucebox::ops
