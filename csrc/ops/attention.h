// attention: q/k norm, RoPE, cache write, attend, output gate of one layer, for the rows of several sequences
//   in   qg [rows, heads, 2, head_dim] f32 query and gate · k, v [rows, kv_heads, head_dim] f32 · q_norm, k_norm [head_dim] ·
//        rope_cos, rope_sin [rows, rope_dims / 2] in the batch
//   in/out  pages [pages, page_bytes] (ops/kv.h) · table [slots, max_pages] i32: page of a slot's tokens 256 i ..   out  y [rows, heads * head_dim] as Acts
//   heads a multiple of kv_heads; query head h reads kv head h / (heads / kv_heads) · head_dim a multiple of 32, at most 256 · rope_dims even
//   order: all K and V of the call are stored first; a row sees keys up to its own position. RMS over head_dim, pairs (i, i + rope_dims / 2):
//     x' = fma(x, c, -(x2 * s)), x2' = fma(x2, c, x * s). Keys are cut at multiples of 32 (tile), 256 (segment) and 4,096 (group); in a segment an
//     online softmax goes tile by tile: scores, maximum, rescale by exp(m_old - m_new) if it rose, p = exp(s - m), l += tree(p), value sums.
//     Merge of segments inside a group, then of groups, in order: m = max, a = exp(m1 - m), b = exp(m2 - m), l = fma(l2, b, l1 * a), o likewise.
//     y = (o / l) * sigmoid(gate).
//     q8_0: score = blocks of 32 dims in order fma(d_q * d_k, float(idot), acc) from +0, times f32(1/sqrt(head_dim)); values per tile and 32 dims:
//     w = p * d_v, step = 2^(e-14), 2^e <= max w < 2^(e+1), w_int = round_half_even(w / step), fma(step, float(sum w_int * v_int), acc);
//     max w < 2^-100 adds nothing; a w that is NaN or Inf makes the step NaN.
//     f16, f32: score by fma over the dims in order from +0, times the factor; values fma(p, v, acc) key by key; q is never rounded.
//   work: scratch of the backend · async, may be captured · cost: K and V of each sequence once + rows * heads * head_dim * 13 bytes
#pragma once
#include "ops/kv.h"

namespace lucebox::ops {
struct Attention {
    const Batch* batch;
    int heads, rope_dims;
    KvLayout layout;
    float eps;
    float* qg;             // [rows, heads, 2, head_dim]; normed and rotated in place
    float* k;              // [rows, kv_heads, head_dim]; likewise
    const float* v;        // [rows, kv_heads, head_dim]
    const float* q_norm;   // [head_dim]
    const float* k_norm;   // [head_dim]
    uint8_t* pages;        // [pages, page_bytes]
    const int32_t* table;  // [slots, max_pages]
    int max_pages;
    Acts y;                // [rows, heads * head_dim]
};
}  // namespace lucebox::ops
