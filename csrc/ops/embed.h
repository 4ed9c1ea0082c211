// embed: h[r] = decode(weight row token[r])
//   in   token [rows] i32 · weight [vocab, hidden] any matrix type          out  h [rows, hidden] f32
//   rows 1..128 · 0 <= token < vocab, checked by the caller
//   order: the decode formula of the type, scale first; not quantised again
//   work: none · async, may be captured · cost: rows * row_bytes + rows * hidden * 4 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Embed {
    const Batch* batch;
    Weight weight;
    float* h;  // [rows, hidden]
};
}  // namespace lucebox::ops
