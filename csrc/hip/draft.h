// The drafter's small kernels: taps, rows quantised, dynamic convolution, candidates, the selector's edges (ops/tap.h, quantize.h, draft_conv.h, top_k.h,
// lattice.h).
#pragma once
#include "hip/argmax.h"
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

// A workgroup a row of the bucket; a lane four channels.
LUCE_DEVICE void draft_conv(const DraftConvArgs& a) {
    const int row = block_id(), hidden = a.hidden, groups = hidden / a.group;
    if (row >= a.batch->rows) return;
    const bool first_row = span_of(*a.batch, row).first == row;
    const size_t at_row = static_cast<size_t>(row) * static_cast<size_t>(hidden);
    const float *base0 = a.base + a.side * 2 * hidden, *base1 = base0 + hidden;
    const float *delta0 = a.delta + (static_cast<size_t>(row) * 4 + static_cast<size_t>(a.side) * 2) * static_cast<size_t>(groups), *delta1 = delta0 + groups;
    for (int first = thread_id() / 32 * 128; first < hidden; first += 8 * 128) {
        const int at = first + lane_id() * 4;
        const bool live = at < hidden;
        float y[4] = {}, x[4] = {}, before[4] = {}, b0[4] = {}, b1[4] = {};
        if (live) {
            load4(x, a.x + at_row + at), load4(b0, base0 + at), load4(b1, base1 + at);
            if (!first_row) load4(before, a.x + at_row - hidden + at);
            for (int i = 0; i < 4; i++) {
                const int group = (at + i) / a.group;
                y[i] = ops::fma(b1[i] + delta1[group], before[i], (b0[i] + delta0[group]) * x[i]);
            }
        }
        if (a.h) {
            if (!live) continue;
            float h[4];
            load4(h, a.h + at_row + at);
            for (int i = 0; i < 4; i++) h[i] = h[i] + y[i];
            store4(a.h + at_row + at, h);
        } else {
            if (live) store4(a.y.x + at_row + at, y);
            quantize_store(a.y, row, at / 32, y, live);
        }
    }
}

// The best of n values, or (`behind`) of those behind `last` in the order of ops/top_k.h, by 256 threads; all get it. read(i) gives value and id.
template <class Read> LUCE_DEVICE Best next_best(int n, bool behind, const Best last, const Read& read, Best* waves) {
    Best b = {ops::from_bits(0xff800000u), 0x7fffffff};
    for (int i = thread_id(); i < n; i += 256) {
        const Best x = read(i);
        if (!behind || x.id < 0 || better(last, x)) b = best_of(b, x);
    }
    b = wave_best(b);
    barrier();  // the last result has been read
    if (lane_id() == 0) waves[thread_id() / 32] = b;
    barrier();
    b = waves[0];
    for (int w = 1; w < 8; w++) b = best_of(b, waves[w]);
    return b;
}

// Grid x: parts of the vocabulary, y: rows. Where a part holds fewer than k, it repeats the loser of all.
LUCE_DEVICE void top_k_parts(const TopKArgs& a) {
    LUCE_SHARED(Best, waves, 8);
    const int row = block_id_y(), each = (a.vocab + kTopKParts - 1) / kTopKParts, first = block_id() * each;
    const int n = first + each < a.vocab ? each : a.vocab - first;
    const float* logits = a.logits + static_cast<size_t>(row) * static_cast<size_t>(a.vocab) + first;
    const bool plain = a.multiplier == 1 && a.softcap == 0;
    const auto read = [&](int i) {
        float x = logits[i];
        if (!plain) {
            x = x * a.multiplier;
            if (a.softcap != 0) x = a.softcap * ops::tanh(x / a.softcap);
        }
        return Best{x, x != x ? -1 : first + i};
    };
    Best last = {};
    for (int j = 0; j < a.k; j++) {
        last = next_best(n, j > 0, last, read, waves);
        if (thread_id() == 0) a.parts[(row * kTopKParts + block_id()) * ops::kCandidates + j] = last;
    }
}

LUCE_DEVICE void top_k_join(const TopKArgs& a) {
    LUCE_SHARED(Best, waves, 8);
    const int row = block_id();
    const Best* parts = a.parts + static_cast<size_t>(row) * kTopKParts * ops::kCandidates;
    const auto read = [&](int i) { return parts[i / a.k * ops::kCandidates + i % a.k]; };
    Best last = {};
    for (int j = 0; j < a.k; j++) {
        last = next_best(kTopKParts * a.k, j > 0, last, read, waves);
        if (thread_id() != 0) continue;
        a.id[row * ops::kCandidates + j] = last.id;
        a.value[row * ops::kCandidates + j] = last.id < 0 ? ops::quiet_nan() : last.value;
    }
    if (thread_id() == 0)
        for (int j = a.k; j < ops::kCandidates; j++) a.id[row * ops::kCandidates + j] = -1;
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
