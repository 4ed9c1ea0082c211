// The drafter's small kernels: taps, rows quantised, dynamic convolution, the selector's edges (ops/tap.h, quantize.h, draft_conv.h, lattice.h).
#pragma once
#include "hip/quantize.h"

namespace lucebox::hip {
namespace {

// The span of a row of the batch.
LUCE_DEVICE const ops::Span& span_of(const ops::Batch& batch, int row) {
    int s = 0;
    while (s + 1 < batch.spans && row >= batch.span[s].first + batch.span[s].rows) s++;
    return batch.span[s];
}

// A workgroup a row; 256 threads.
LUCE_DEVICE void tap(const TapArgs& a) {
    LUCE_SHARED(int, waves, 8);
    const int row = block_id();
    const float* h = a.h + static_cast<size_t>(row) * static_cast<size_t>(a.hidden);
    float* out = a.out + static_cast<size_t>(row) * static_cast<size_t>(a.columns) + a.offset;
    int changed = 0;
    for (int i = thread_id(); i < a.hidden; i += 256) {
        const float x = h[i], y = x != x ? 0.0f : x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
        changed += x == y ? 0 : 1;
        out[i] = y;
    }
    changed = wave_join(changed, [](int v, int d) { return v + static_cast<int>(shfl_xor(static_cast<uint32_t>(v), d)); });
    if (lane_id() == 0) waves[thread_id() / 32] = changed;
    barrier();
    if (thread_id() != 0) return;
    for (int w = 1; w < 8; w++) changed += waves[w];
    a.mended[row] += changed;
}

// A workgroup a row; a lane four values, a wave 128.
LUCE_DEVICE void quantize_rows(const QuantizeArgs& a) {
    const int row = block_id();
    const float* x = a.x + static_cast<size_t>(a.select[row]) * static_cast<size_t>(a.columns);
    for (int first = thread_id() / 32 * 128; first < a.columns; first += 8 * 128) {
        const int at = first + lane_id() * 4;
        const bool live = at < a.columns;
        float v[4] = {};
        if (live) load4(v, x + at), store4(a.y.x + static_cast<size_t>(row) * static_cast<size_t>(a.columns) + at, v);
        quantize_store(a.y, row, at / 32, v, live);
    }
}

// Grid x: rows of the bucket, y: eights of 128 channels; a lane has four. What does not depend on the batch is loaded before it is looked at.
LUCE_DEVICE void draft_conv(const DraftConvArgs& a) {
    const int row = block_id(), hidden = a.hidden, groups = hidden / a.group;
    const int at = (block_id_y() * 256 + thread_id()) * 4;
    const bool live = at < hidden;
    const size_t at_row = static_cast<size_t>(row) * static_cast<size_t>(hidden);
    const float *base0 = a.base + a.side * 2 * hidden, *base1 = base0 + hidden;
    const float *delta0 = a.delta + (static_cast<size_t>(row) * 4 + static_cast<size_t>(a.side) * 2) * static_cast<size_t>(groups), *delta1 = delta0 + groups;
    float y[4] = {}, x[4] = {}, before[4] = {}, b0[4] = {}, b1[4] = {}, h[4] = {};
    if (live) {
        load4(x, a.x + at_row + at), load4(b0, base0 + at), load4(b1, base1 + at);
        if (row) load4(before, a.x + at_row - hidden + at);
        if (a.h) load4(h, a.h + at_row + at);
        for (int i = 0; i < 4; i++) {
            const int group = (at + i) / a.group;
            b0[i] = b0[i] + delta0[group], b1[i] = b1[i] + delta1[group];
        }
    }
    if (row >= a.batch->rows) return;
    const bool first_row = span_of(*a.batch, row).first == row;
    for (int i = 0; i < 4; i++) y[i] = ops::fma(b1[i], first_row ? 0.0f : before[i], b0[i] * x[i]);
    if (a.h) {
        for (int i = 0; i < 4; i++) h[i] = h[i] + y[i];
        if (live) store4(a.h + at_row + at, h);
    } else {
        if (live) store4(a.y.x + at_row + at, y);
        quantize_store(a.y, row, at / 32, y, live);
    }
}

// Whether a row follows its block's anchor, and so has that one predecessor.
LUCE_DEVICE bool follows_anchor(const ops::Batch& batch, int row) { return span_of(batch, row).first == row - 1; }

// Predecessors of each row: the candidates of the row before it, or the anchor; -1: none. A workgroup a row, 32 threads.
LUCE_DEVICE void lattice_predecessors(const LatticeArgs& a) {
    const int i = block_id(), j = thread_id();
    if (j >= ops::kCandidates) return;
    int32_t id = -1;
    if (i < a.batch->wanted) {
        const int row = a.batch->want[i];
        if (!follows_anchor(*a.batch, row)) id = j < a.k ? a.id[(i - 1) * ops::kCandidates + j] : -1;
        else if (j == 0) id = a.batch->token[row - 1];
    }
    a.before[i * ops::kCandidates + j] = id;
}

// Grid x: rows, y: predecessors; a wave takes candidates in turn. a.codes: rows of A, then of B, as `before` and `id` name them.
LUCE_DEVICE void lattice_edges(const LatticeArgs& a) {
    const int i = block_id(), p = block_id_y(), lane = lane_id();
    if (i >= a.batch->wanted || p >= (follows_anchor(*a.batch, a.batch->want[i]) ? 1 : a.k)) return;
    const int32_t* before = a.before + i * ops::kCandidates;
    const size_t rank = static_cast<size_t>(a.rank), all = static_cast<size_t>(a.count) * ops::kCandidates;
    const float* A = a.codes + (static_cast<size_t>(i) * ops::kCandidates + static_cast<size_t>(p)) * rank;
    const float* B = a.codes + (all + static_cast<size_t>(i) * ops::kCandidates) * rank;
    const float* g = a.g + static_cast<size_t>(i) * rank;
    const bool numbers = a.rank > 0 && a.id[i * ops::kCandidates] >= 0 && before[0] >= 0;
    for (int b = thread_id() / 32; b < a.k; b += 8) {
        float total = 0;
        for (int s = 0; numbers && s < a.rank; s += ops::kSegment) {
            float acc = 0;
            const int last = a.rank - s < ops::kSegment ? a.rank : s + ops::kSegment;
            for (int r = s + lane; r < last; r += 32) acc = ops::fma(A[r] * g[r], B[static_cast<size_t>(b) * rank + static_cast<size_t>(r)], acc);
            acc = wave_sum(acc);
            total = s ? total + acc : acc;
        }
        if (lane != 0) continue;
        const float value = a.value[i * ops::kCandidates + b];
        a.edge[(i * ops::kCandidates + p) * ops::kCandidates + b] = numbers ? value + total : value;
    }
}

}  // namespace
}  // namespace lucebox::hip
