// argmax: id[r] = the id of the largest logit by (value descending, id ascending), -0 = +0
//   in   logits [rows, vocab] f32                out  id [rows] i32: the id, or -1 if the row holds a NaN
//   rows 1..128 · vocab at least 1
//   order: none · work: none · async, may be captured · cost: rows * vocab * 4 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Argmax {
    const float* logits;  // [rows, vocab]
    int rows, vocab;
    int32_t* id;          // [rows]
};
}  // namespace lucebox::ops
