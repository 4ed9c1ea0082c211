// ops/attention.h in AVX-512: lanes are keys in the scores and dimensions in the value sums; the heads of a group share what they load.
#include "cpu/lanes_avx512.h"
#include "cpu/simd.h"

namespace lucebox::cpu::zmm {

using ops::KvForm;
using ops::KvLayout;
using ops::kTile;

namespace {

constexpr int kMaxDim = 256, kMaxHeads = 8;

// Unnormalised attention of a head over some keys: maximum, sum of weights, weighted sum of values.
struct alignas(64) Part {
    float o[kMaxDim];
    float m, l;
    bool any;
};

struct Call {
    const AttendGroup& g;
    int first_head, heads;  // of the group, at most kMaxHeads
    int dims, blocks;       // blocks of 32 dimensions
    alignas(64) int32_t minus_offset[kMaxHeads][kMaxDim / 32];  // -128 * sum of q, for keys made unsigned
};

LUCE_FN __m512i load(const void* p) { return _mm512_loadu_si512(p); }
LUCE_FN __m512i spread32(const void* p) {
    int v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}
LUCE_FN __m512 halves16(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
template <KvForm F> LUCE_FN __m512 float16(const uint8_t* tile, size_t index) {
    if constexpr (F == KvForm::F16) return halves16(tile + 2 * index);
    else return _mm512_loadu_ps(tile + 4 * index);
}
// Step i of n of fetching the next tile's K or V into the second cache: a tile is too short for the processor's own streams (6 heads at 32,768
// keys: 3.0 us a tile without, 1.5 with).
LUCE_FN void fetch(const uint8_t* part, size_t bytes, int i, int n) {
    const size_t from = bytes * static_cast<size_t>(i) / static_cast<size_t>(n), to = bytes * static_cast<size_t>(i + 1) / static_cast<size_t>(n);
    for (size_t at = from / 64 * 64; at < to; at += 64) _mm_prefetch(reinterpret_cast<const char*>(part) + at, _MM_HINT_T1);
}
LUCE_FN void clear(Part& p) {
    p.any = false, p.m = 0, p.l = 0;
    for (int e = 0; e < kMaxDim; e += 16) _mm512_store_ps(p.o + e, _mm512_setzero_ps());
}

// scores

void scores_q8(const Call& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512 factor = _mm512_set1_ps(c.g.factor);
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    for (int half = 0; half < 2; half++) {
        __m512 acc[kMaxHeads];
        for (auto& a : acc) a = _mm512_setzero_ps();
        for (int b = 0; b < c.blocks; b++) {
            fetch(next, c.g.layout.tile_bytes(), half * c.blocks + b, 2 * c.blocks);
            __m512i k[8];
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) k[j] = _mm512_xor_si512(load(tile + ((8 * b + j) * kTile + 16 * half) * 4), sign);
            const __m512 dk = halves16(scales + 2 * (b * kTile + 16 * half));
            for (int h = 0; h < c.heads; h++) {
                const int8_t* q = c.g.q + (c.first_head + h) * c.dims + 32 * b;
                __m512i dot = _mm512_set1_epi32(c.minus_offset[h][b]);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) dot = _mm512_dpbusd_epi32(dot, k[j], spread32(q + 4 * j));
                const __m512 dq = _mm512_set1_ps(c.g.d[(c.first_head + h) * c.blocks + b]);
                acc[h] = _mm512_fmadd_ps(_mm512_mul_ps(dq, dk), _mm512_cvtepi32_ps(dot), acc[h]);
            }
        }
        for (int h = 0; h < c.heads; h++) _mm512_storeu_ps(score[h] + 16 * half, _mm512_mul_ps(acc[h], factor));
    }
}

template <KvForm F, int H> void scores_float(const Call& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    __m512 acc[H][2];
    for (auto& a : acc) a[0] = a[1] = _mm512_setzero_ps();
    const float* q = c.g.qg + static_cast<size_t>(c.first_head) * 2 * c.dims;
    for (int e = 0; e < c.dims; e++) {
        fetch(next, c.g.layout.tile_bytes(), e, c.dims);
        const __m512 k0 = float16<F>(tile, static_cast<size_t>(e) * kTile), k1 = float16<F>(tile, static_cast<size_t>(e) * kTile + 16);
        for (int h = 0; h < H; h++) {
            const __m512 qe = _mm512_set1_ps(q[2 * h * c.dims + e]);
            acc[h][0] = _mm512_fmadd_ps(qe, k0, acc[h][0]), acc[h][1] = _mm512_fmadd_ps(qe, k1, acc[h][1]);
        }
    }
    const __m512 factor = _mm512_set1_ps(c.g.factor);
    for (int h = 0; h < H; h++) {
        _mm512_storeu_ps(score[h], _mm512_mul_ps(acc[h][0], factor));
        _mm512_storeu_ps(score[h] + 16, _mm512_mul_ps(acc[h][1], factor));
    }
}

// values

// A head's weights for a block of 32 dimensions in 15 bits: their low bytes, then their high ones, in the order of the keys.
struct Weights {
    alignas(64) uint8_t low[kTile];
    uint8_t high[kTile];
};

// The largest of 32 lanes that are not negative, in all lanes; bits order like integers, NaN and Inf last.
LUCE_FN __m512i largest(__m512 x, __m512 y) {
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i m = _mm512_and_si512(_mm512_max_epu32(_mm512_castps_si512(x), _mm512_castps_si512(y)), size);
    m = _mm512_max_epu32(m, _mm512_shuffle_i32x4(m, m, 0x4e));
    m = _mm512_max_epu32(m, _mm512_shuffle_i32x4(m, m, 0xb1));
    m = _mm512_max_epu32(m, _mm512_shuffle_epi32(m, static_cast<_MM_PERM_ENUM>(0x4e)));
    return _mm512_max_epu32(m, _mm512_shuffle_epi32(m, static_cast<_MM_PERM_ENUM>(0xb1)));
}

// w = p * d_v; returns the step, 0 for weights too small to add anything. With 2^e <= max w < 2^(e + 1) step = 2^(e - 14).
LUCE_FN float quantize_weights(const float* p, __m512 d0, __m512 d1, __mmask16 m0, __mmask16 m1, __m512i order, Weights& out) {
    // Absent keys weigh +0 whatever their scale is.
    const __m512 w0 = _mm512_maskz_mul_ps(m0, _mm512_loadu_ps(p), d0), w1 = _mm512_maskz_mul_ps(m1, _mm512_loadu_ps(p + 16), d1);
    const __m512i top = largest(w0, w1), exponent = _mm512_and_si512(top, _mm512_set1_epi32(0x7f800000));
    const __m512 one_by_step = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32((127 + 127 + 14) << 23), exponent));
    const __m512i i0 = _mm512_cvtps_epi32(_mm512_mul_ps(w0, one_by_step)), i1 = _mm512_cvtps_epi32(_mm512_mul_ps(w1, one_by_step));
    _mm512_store_si512(out.low, _mm512_permutexvar_epi8(order, _mm512_packus_epi32(i0, i1)));
    const uint32_t bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(top)));
    return bits < 0x0d800000u ? 0.0f : bits < 0x7f800000u ? ops::from_bits((bits & 0x7f800000u) - (14u << 23)) : ops::quiet_nan();  // 2^-100
}

void add_values_q8(const Call& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], uint32_t present, Part* parts) {
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    const __mmask16 m0 = static_cast<__mmask16>(present), m1 = static_cast<__mmask16>(present >> 16);
    alignas(64) uint8_t places[64];  // packus interleaves the two vectors four by four
    for (int i = 0; i < 32; i++) places[i] = static_cast<uint8_t>(2 * (i % 4 + i % 16 / 4 * 8 + i / 16 * 4)), places[32 + i] = static_cast<uint8_t>(places[i] + 1);
    const __m512i order = load(places);
    for (int b = 0; b < c.blocks; b++) {
        const __m512 d0 = halves16(scales + 2 * b * kTile), d1 = halves16(scales + 2 * (b * kTile + 16));
        fetch(next, c.g.layout.tile_bytes(), b, c.blocks);
        Weights weights[kMaxHeads];
        float step[kMaxHeads];
        for (int h = 0; h < c.heads; h++) step[h] = quantize_weights(p[h], d0, d1, m0, m1, order, weights[h]);
        __m512i v[8][2];
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) v[j][0] = load(tile + (static_cast<size_t>(j) * c.dims + 32 * b) * 4), v[j][1] = load(tile + (static_cast<size_t>(j) * c.dims + 32 * b + 16) * 4);
        for (int h = 0; h < c.heads; h++) {
            if (step[h] == 0) continue;
            __m512i low[2], high[2];
            low[0] = low[1] = high[0] = high[1] = _mm512_setzero_si512();
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                const __m512i l = spread32(weights[h].low + 4 * j), u = spread32(weights[h].high + 4 * j);
                for (int half = 0; half < 2; half++) low[half] = _mm512_dpbusd_epi32(low[half], l, v[j][half]), high[half] = _mm512_dpbusd_epi32(high[half], u, v[j][half]);
            }
            for (int half = 0; half < 2; half++) {
                float* o = parts[h].o + 32 * b + 16 * half;
                const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(low[half], _mm512_slli_epi32(high[half], 8)));
                _mm512_store_ps(o, _mm512_fmadd_ps(_mm512_set1_ps(step[h]), sum, _mm512_load_ps(o)));
            }
        }
    }
}

// 32 dimensions of H heads at a time, key by key.
template <KvForm F, int H>
void add_values_float(const Call& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int keys, Part* parts) {
    for (int e = 0; e < c.dims; e += 32) {
        __m512 o[H][2];
        for (int h = 0; h < H; h++) o[h][0] = _mm512_load_ps(parts[h].o + e), o[h][1] = _mm512_load_ps(parts[h].o + e + 16);
        for (int i = 0; i < keys; i++) {
            fetch(next, c.g.layout.tile_bytes(), e / 32 * kTile + i, c.blocks * kTile);
            const size_t at = static_cast<size_t>(i) * c.dims + e;
            const __m512 v0 = float16<F>(tile, at), v1 = float16<F>(tile, at + 16);
            for (int h = 0; h < H; h++) {
                const __m512 w = _mm512_set1_ps(p[h][i]);
                o[h][0] = _mm512_fmadd_ps(w, v0, o[h][0]), o[h][1] = _mm512_fmadd_ps(w, v1, o[h][1]);
            }
        }
        for (int h = 0; h < H; h++) _mm512_store_ps(parts[h].o + e, o[h][0]), _mm512_store_ps(parts[h].o + e + 16, o[h][1]);
    }
}

// softmax

// Scores of a tile become weights; the part's maximum, sum and values are rescaled.
LUCE_FN void weigh(float* p, uint32_t present, int dims, Part& part) {
    const __mmask16 m0 = static_cast<__mmask16>(present), m1 = static_cast<__mmask16>(present >> 16);
    const __m512 least = _mm512_set1_ps(-__builtin_inff());
    const __m512 s0 = _mm512_mask_loadu_ps(least, m0, p), s1 = _mm512_mask_loadu_ps(least, m1, p + 16);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(s0, s1));
    if (!part.any) part.any = true, part.m = top;
    if (top > part.m) {
        const float c = ops::exp(part.m - top);
        part.m = top, part.l = part.l * c;
        for (int e = 0; e < dims; e += 16) _mm512_store_ps(part.o + e, _mm512_mul_ps(_mm512_load_ps(part.o + e), _mm512_set1_ps(c)));
    }
    for (int i = 0; i < kTile; i++) p[i] = ops::exp(p[i] - part.m);
    const __m512 p0 = _mm512_maskz_loadu_ps(m0, p), p1 = _mm512_maskz_loadu_ps(m1, p + 16);
    _mm512_storeu_ps(p, p0), _mm512_storeu_ps(p + 16, p1);
    part.l = part.l + tree32(p0, p1);
}

// Later keys join earlier ones; the first part is taken as it is.
void merge(Part& a, const Part& b, int dims) {
    if (!a.any) {
        a = b;
        return;
    }
    const float m = ops::max(a.m, b.m), ea = ops::exp(a.m - m), eb = ops::exp(b.m - m);
    a.l = ops::fma(b.l, eb, a.l * ea), a.m = m;
    const __m512 va = _mm512_set1_ps(ea), vb = _mm512_set1_ps(eb);
    for (int e = 0; e < dims; e += 16)
        _mm512_store_ps(a.o + e, _mm512_fmadd_ps(_mm512_load_ps(b.o + e), vb, _mm512_mul_ps(_mm512_load_ps(a.o + e), va)));
}

// Calls run with the number of heads as a constant.
template <int H> struct Heads {
    constexpr int operator()() const { return H; }
};
template <class Run> LUCE_FN void with_heads(int heads, const Run& run) {
    switch (heads) {
        case 1: return run(Heads<1>{});
        case 2: return run(Heads<2>{});
        case 3: return run(Heads<3>{});
        case 4: return run(Heads<4>{});
        case 5: return run(Heads<5>{});
        case 6: return run(Heads<6>{});
        case 7: return run(Heads<7>{});
        default: return run(Heads<8>{});
    }
}

// next: the tile after this one.
template <KvForm F> void attend_tile(const Call& c, const uint8_t* tile, const uint8_t* next, int keys, Part* parts) {
    alignas(64) float p[kMaxHeads][kTile];
    const uint8_t* values = tile + c.g.layout.tile_bytes();
    const uint32_t present = keys < kTile ? (1u << keys) - 1 : ~0u;
    if constexpr (F == KvForm::Q8_0) scores_q8(c, tile, next, p);
    else with_heads(c.heads, [&](auto heads) { scores_float<F, heads()>(c, tile, next, p); });
    for (int h = 0; h < c.heads; h++) weigh(p[h], present, c.dims, parts[h]);
    next += c.g.layout.tile_bytes();
    if constexpr (F == KvForm::Q8_0) add_values_q8(c, values, next, p, present, parts);
    else with_heads(c.heads, [&](auto heads) { add_values_float<F, heads()>(c, values, next, p, keys, parts); });
}

// The K tile of token t.
LUCE_FN const uint8_t* tile_of(const AttendGroup& g, int t) {
    return g.pages + static_cast<size_t>(g.table[t / ops::kPage]) * g.layout.page_bytes() + g.layout.tile_at(g.kv_head, t % ops::kPage / kTile);
}

template <KvForm F> void attend_heads(const Call& c) {
    constexpr int kKeysAGroup = 4096;
    const AttendGroup& g = c.g;
    Part all[kMaxHeads], group[kMaxHeads], segment[kMaxHeads];
    for (int h = 0; h < c.heads; h++) clear(all[h]);
    for (int first = 0; first <= g.position; first += kKeysAGroup) {
        for (int h = 0; h < c.heads; h++) clear(group[h]);
        for (int s = first; s < first + kKeysAGroup && s <= g.position; s += ops::kPage) {
            for (int h = 0; h < c.heads; h++) clear(segment[h]);
            for (int t = s; t < s + ops::kPage && t <= g.position; t += kTile) {
                const int left = g.position + 1 - t;
                attend_tile<F>(c, tile_of(g, t), tile_of(g, left > kTile ? t + kTile : t), left < kTile ? left : kTile, segment);
            }
            for (int h = 0; h < c.heads; h++) merge(group[h], segment[h], c.dims);
        }
        for (int h = 0; h < c.heads; h++) merge(all[h], group[h], c.dims);
    }
    for (int h = 0; h < c.heads; h++) {
        const size_t head = static_cast<size_t>(c.first_head + h);
        const float *gate = g.qg + (2 * head + 1) * c.dims, *o = all[h].o;
        float* __restrict y = g.y + head * c.dims;
        const float l = all[h].l;
        for (int e = 0; e < c.dims; e++) y[e] = (o[e] / l) * ops::sigmoid(gate[e]);
    }
}

}  // namespace

void rotate(float* x, const float* cos, const float* sin, int half) {
    for (int i = 0; i < half; i++) {
        const float x1 = x[i], x2 = x[i + half];
        x[i] = ops::fma(x1, cos[i], -(x2 * sin[i]));
        x[i + half] = ops::fma(x2, cos[i], x1 * sin[i]);
    }
}

void store_kv(const KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key) {
    const int dims = layout.head_dim;
    if (layout.form == KvForm::Q8_0) {
        int8_t q[kMaxDim];
        float d[kMaxDim / 32];
        int32_t sum[kMaxDim / 16];
        quantize_row(x, dims, q, d, sum);
        for (int b = 0; b < dims / 32; b++) {
            const uint16_t scale = d[b] < 65520.0f ? ops::to_f16(d[b]) : 0x7e00;
            memcpy(tile + layout.scales_at() + 2 * KvLayout::scale_index(key, 32 * b), &scale, 2);
        }
        if (is_key)
            for (int e = 0; e < dims; e += 4) memcpy(tile + layout.k_index(key, e), q + e, 4);
        else
            for (int e = 0; e < dims; e++) tile[layout.v_index(key, e)] = static_cast<uint8_t>(q[e]);
        return;
    }
    for (int e = 0; e < dims; e++) {
        const size_t at = is_key ? layout.k_index(key, e) : layout.v_index(key, e);
        const uint16_t half = ops::to_f16(x[e]);
        if (layout.form == KvForm::F16) memcpy(tile + 2 * at, &half, 2);
        else memcpy(tile + 4 * at, x + e, 4);
    }
}

void attend(const AttendGroup& g) {
    for (int first = 0; first < g.heads; first += kMaxHeads) {
        Call c{g, first, g.heads - first < kMaxHeads ? g.heads - first : kMaxHeads, g.layout.head_dim, g.layout.head_dim / 32, {}};
        for (int h = 0; h < c.heads; h++)
            for (int b = 0; b < c.blocks; b++) {
                const int8_t* q = g.q + (first + h) * c.dims + 32 * b;
                int sum = 0;
                for (int e = 0; e < 32; e++) sum += q[e];
                c.minus_offset[h][b] = -128 * sum;
            }
        switch (g.layout.form) {
            case KvForm::Q8_0: attend_heads<KvForm::Q8_0>(c); break;
            case KvForm::F16: attend_heads<KvForm::F16>(c); break;
            case KvForm::F32: attend_heads<KvForm::F32>(c); break;
        }
    }
}

}  // namespace lucebox::cpu::zmm
