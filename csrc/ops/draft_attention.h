// draft_attention: a drafter's attention over its ring of context rows and the block itself
//   in   q [rows, heads, head_dim] f32 · k, v [rows, kv_heads, head_dim] f32 · q_norm, k_norm [head_dim] · rope_cos, rope_sin over all of head_dim
//   in/out  pages (ops/kv.h, f16) · table [slots, max_pages] i32: a ring is a table that repeats its pages       out  y [rows, heads * head_dim] as Acts
//   heads a multiple of kv_heads; query head h reads kv head h / (heads / kv_heads) · head_dim a multiple of 32, at most 256 · scale 1 / sqrt(head_dim)
//   order: as ops/attention.h in its f16 form without a gate. All K and V of the block are stored first, at the rows' positions. A row at position t of
//     a span at n = position with `context` rows before it and `rows` of its own sees the keys from n - context to n + rows - 1, of these with a window
//     those with |t - s| < window, and causal those with s <= t. Keys that it does not see take no part in a tile.
//   work: scratch of the backend · async, may be captured · cost: K and V of each window once + rows * heads * head_dim * 9 bytes
//
// draft_context: k norm, RoPE and the store alone, for rows of accepted context.
#pragma once
#include "ops/kv.h"
#include "ops/math.h"

namespace lucebox::ops {
struct DraftContext {
    const Batch* batch;
    int rows;
    KvLayout layout;
    float eps;
    float* k;              // [rows, kv_heads, head_dim]; normed and rotated in place
    const float* v;        // [rows, kv_heads, head_dim]
    const float* k_norm;   // [head_dim]
    uint8_t* pages;
    const int32_t* table;  // [slots, max_pages]
    int max_pages;
};
struct DraftAttention {
    DraftContext block;    // the rows' own keys and values
    int heads;
    int window;            // 0: none
    bool causal;
    float* q;              // [rows, heads, head_dim]; normed and rotated in place
    const float* q_norm;   // [head_dim]
    Acts y;                // [rows, heads * head_dim]
};

// The keys first .. last that row `row` of the batch sees.
struct Visible {
    int first, last;
};
LUCE_FN Visible visible(const Span& span, int row, int window, bool causal) {
    const int t = span.position + row - span.first, end = span.position + span.rows - 1, start = span.position - span.context;
    const int first = window && t - window + 1 > start ? t - window + 1 : start, last = causal ? t : window && t + window - 1 < end ? t + window - 1 : end;
    return {first, last};
}
}  // namespace lucebox::ops
