// top_k: the k largest logits of a row by (value descending, id ascending), -0 = +0; value = cap(logit * multiplier), cap(x) = softcap * tanh(x / softcap)
//   in   logits [rows, vocab] f32               out  id [rows, 16] i32, value [rows, 16] f32, the first k of each row, the other ids -1
//   rows 1..128 · 1 <= k <= 16, k <= vocab · softcap 0: no cap · a row with a NaN: all its ids are -1
//   order: the product, then the cap (tanh of ops/math.h), then the order above · work: scratch of the backend · async, may be captured ·
//   cost: rows * vocab * 4 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct TopK {
    const float* logits;  // [rows, vocab]
    int rows, vocab, k;
    float multiplier, softcap;
    int32_t* id;          // [rows, kCandidates]
    float* value;         // [rows, kCandidates]
};
}  // namespace lucebox::ops
