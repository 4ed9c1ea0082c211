// Attention for the SIMD variants, written once over a variant's vectors L and its products of one tile (attention_avx2.cpp,
// attention_avx512.cpp). Lanes are keys in the scores and dimensions in the value sums; the heads of a group share what they load.
#pragma once
#include "cpu/kernels.h"
#include "ops/math.h"
#include <immintrin.h>

namespace lucebox::cpu {

using ops::KvForm;
using ops::KvLayout;
using ops::kTile;

inline constexpr int kMaxDim = 256, kMaxHeads = 8;

// Unnormalised attention of a head over some keys: maximum, sum of weights, weighted sum of values.
struct alignas(64) Part {
    float o[kMaxDim];
    float m, l;
    bool any;
};

struct Heads {
    const AttendGroup& g;
    int first, count;                      // of the group, at most kMaxHeads
    int dims, blocks;                      // blocks of 32 dimensions
    size_t tile_bytes;
    int32_t sum[kMaxHeads][kMaxDim / 32];  // of a block of q
};

// Step i of n of fetching the next tile's K or V into the second cache: a tile is too short for the processor's own streams (6 heads at 32,768
// keys: 3.0 us a tile without, 1.7 with).
LUCE_FN void fetch(const uint8_t* part, size_t bytes, int i, int n) {
    const size_t from = bytes * static_cast<size_t>(i) / static_cast<size_t>(n), to = bytes * static_cast<size_t>(i + 1) / static_cast<size_t>(n);
    for (size_t at = from / 64 * 64; at < to; at += 64) _mm_prefetch(reinterpret_cast<const char*>(part) + at, _MM_HINT_T1);
}

// Scores of a tile become weights, +0 for keys that are absent (below `from`, from `keys` on); the part's maximum, sum and values are rescaled.
template <class L> LUCE_FN void weigh(float* p, int from, int keys, int dims, Part& part) {
    for (int i = 0; i < from; i++) p[i] = p[from];
    const float top = L::largest(p, keys);
    if (!part.any) part.any = true, part.m = top;
    if (top > part.m) {
        const float c = ops::exp(part.m - top);
        part.m = top, part.l = part.l * c;
        for (int e = 0; e < dims; e += L::kWidth) L::store(part.o + e, L::mul(L::load(part.o + e), L::all(c)));
    }
    for (int i = 0; i < kTile; i++) p[i] = ops::exp(p[i] - part.m);
    for (int i = keys; i < kTile; i++) p[i] = 0;
    for (int i = 0; i < from; i++) p[i] = 0;
    typename L::V lane[kTile / L::kWidth];
    for (int l = 0; l < kTile / L::kWidth; l++) lane[l] = L::load(p + L::kWidth * l);
    part.l = part.l + L::tree32(lane);
}

template <class L> LUCE_FN void clear(Part& part) {
    part.any = false, part.m = 0, part.l = 0;
    for (int e = 0; e < kMaxDim; e += L::kWidth) L::store(part.o + e, L::all(0));
}

// Later keys join earlier ones; the first part is taken as it is.
template <class L> static void merge(Part& a, const Part& b, int dims) {
    if (!b.any) return;
    const float m = a.any ? ops::max(a.m, b.m) : b.m, ea = ops::exp(a.m - m), eb = ops::exp(b.m - m);
    for (int e = 0; e < dims; e += L::kWidth) {
        const auto o = L::load(b.o + e);
        L::store(a.o + e, a.any ? L::fma(o, L::all(eb), L::mul(L::load(a.o + e), L::all(ea))) : o);
    }
    a.l = a.any ? ops::fma(b.l, eb, a.l * ea) : b.l;
    a.m = m, a.any = true;
}

// The K tile of token t.
LUCE_FN const uint8_t* tile_of(const AttendGroup& g, int t) {
    return g.pages + static_cast<size_t>(g.table[t / ops::kPage]) * g.layout.page_bytes() + g.layout.tile_at(g.kv_head, t % ops::kPage / kTile);
}

// scores(tile, next, p) and values(tile, next, p, from, keys, parts) are the variant's products; next is the part of the next tile to fetch.
template <class L, class Scores, class Values> static void attend_heads(const Heads& c, const Scores& scores, const Values& values) {
    constexpr int kKeysAGroup = 4096;
    const AttendGroup& g = c.g;
    Part all[kMaxHeads], group[kMaxHeads], segment[kMaxHeads];
    for (int h = 0; h < c.count; h++) clear<L>(all[h]);
    for (int first = g.first / kKeysAGroup * kKeysAGroup; first <= g.last; first += kKeysAGroup) {
        for (int h = 0; h < c.count; h++) clear<L>(group[h]);
        const int page = g.first / ops::kPage * ops::kPage;
        for (int s = first > page ? first : page; s < first + kKeysAGroup && s <= g.last; s += ops::kPage) {
            for (int h = 0; h < c.count; h++) clear<L>(segment[h]);
            for (int t = s; t < s + ops::kPage && t <= g.last; t += kTile) {
                const int left = g.last + 1 - t, keys = left < kTile ? left : kTile, from = g.first > t ? g.first - t : 0;
                if (from >= keys) continue;
                const uint8_t *tile = tile_of(g, t), *next = tile_of(g, left > kTile ? t + kTile : t);
                alignas(64) float p[kMaxHeads][kTile];
                scores(tile, next, p);
                for (int h = 0; h < c.count; h++) weigh<L>(p[h], from, keys, c.dims, segment[h]);
                values(tile + c.tile_bytes, next + c.tile_bytes, p, from, keys, segment);
            }
            for (int h = 0; h < c.count; h++) merge<L>(group[h], segment[h], c.dims);
        }
        for (int h = 0; h < c.count; h++) merge<L>(all[h], group[h], c.dims);
    }
    for (int h = 0; h < c.count; h++) {
        const size_t head = static_cast<size_t>(c.first + h);
        const float *gate = g.qg + head * g.stride() + c.dims, *o = all[h].o;
        float* __restrict y = g.y + head * c.dims;
        const float l = all[h].l;
        if (g.gated)
            for (int e = 0; e < c.dims; e++) y[e] = (o[e] / l) * ops::sigmoid(gate[e]);
        else
            for (int e = 0; e < c.dims; e++) y[e] = o[e] / l;
    }
}

// run(heads) for up to kMaxHeads of the group at a time.
template <class Run> LUCE_FN void by_heads(const AttendGroup& g, const Run& run) {
    for (int first = 0; first < g.heads; first += kMaxHeads) {
        const int dims = g.layout.head_dim;
        Heads c{g, first, g.heads - first < kMaxHeads ? g.heads - first : kMaxHeads, dims, dims / 32, g.layout.tile_bytes(), {}};
        for (int h = 0; h < c.count; h++)
            for (int e = 0; e < dims && g.q; e++) c.sum[h][e / 32] += g.q[(first + h) * dims + e];
        run(c);
    }
}

LUCE_FN void rotate_pairs(float* x, const float* cos, const float* sin, int half) {
    for (int i = 0; i < half; i++) {
        const float x1 = x[i], x2 = x[i + half];
        x[i] = ops::fma(x1, cos[i], -(x2 * sin[i]));
        x[i + half] = ops::fma(x2, cos[i], x1 * sin[i]);
    }
}

// Into a q8_0 tile, from a row that is quantised already.
LUCE_FN void store_q8(const KvLayout& layout, uint8_t* tile, const int8_t* q, const float* d, int key, bool is_key) {
    const int dims = layout.head_dim;
    for (int b = 0; b < dims / 32; b++) {
        const uint16_t scale = d[b] < 65520.0f ? ops::to_f16(d[b]) : 0x7e00;
        memcpy(tile + layout.scales_at() + 2 * KvLayout::scale_index(key, 32 * b), &scale, 2);
    }
    if (is_key)
        for (int e = 0; e < dims; e += 4) memcpy(tile + layout.k_index(key, e), q + e, 4);
    else
        for (int e = 0; e < dims; e++) tile[layout.v_index(key, e)] = static_cast<uint8_t>(q[e]);
}

LUCE_FN void store_floats(const KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key) {
    for (int e = 0; e < layout.head_dim; e++) {
        const size_t at = is_key ? layout.k_index(key, e) : layout.v_index(key, e);
        const uint16_t half = ops::to_f16(x[e]);
        if (layout.form == KvForm::F16) memcpy(tile + 2 * at, &half, 2);
        else memcpy(tile + 4 * at, x + e, 4);
    }
}

}  // namespace lucebox::cpu
