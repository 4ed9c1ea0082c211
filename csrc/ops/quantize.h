// quantize: y[i] = q8(x[select[i]]), rows as a matmul reads them (the quantiser of ops/norm.h)
//   in   x [rows, columns] f32 · select [count] i32, ascending or not          out  y [count, columns] as Acts
//   count 1..128 · columns a multiple of 32, at most 262144 · x and y may not overlap
//   order: a row does not depend on the others · work: none · async, may be captured · cost: count * columns * 9 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Quantize {
    const float* x;         // [rows, columns]
    const int32_t* select;  // [count]
    int count, columns;
    Acts y;                 // [count, columns]
};
}  // namespace lucebox::ops
