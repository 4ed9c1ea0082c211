// ops/attention.h in AVX2: lanes are keys in the scores and dimensions in the value sums; the heads of a group share what they load.
#include "cpu/lanes_avx2.h"
#include "cpu/simd.h"

namespace lucebox::cpu::ymm {

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
};

template <KvForm F> LUCE_FN __m256 float8(const uint8_t* tile, size_t index) {
    if constexpr (F == KvForm::F16) return halves8(tile + 2 * index);
    else return _mm256_loadu_ps(reinterpret_cast<const float*>(tile + 4 * index));
}
// Step i of n of fetching the next tile's K or V into the second cache: a tile is too short for the processor's own streams (6 heads at 32,768
// keys: 3.0 us a tile without, 1.5 with).
LUCE_FN void fetch(const uint8_t* part, size_t bytes, int i, int n) {
    const size_t from = bytes * static_cast<size_t>(i) / static_cast<size_t>(n), to = bytes * static_cast<size_t>(i + 1) / static_cast<size_t>(n);
    for (size_t at = from / 64 * 64; at < to; at += 64) _mm_prefetch(reinterpret_cast<const char*>(part) + at, _MM_HINT_T1);
}
LUCE_FN void clear(Part& p) {
    p.any = false, p.m = 0, p.l = 0;
    for (int e = 0; e < kMaxDim; e += 8) _mm256_store_ps(p.o + e, _mm256_setzero_ps());
}

// scores

void scores_q8(const Call& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 factor = _mm256_set1_ps(c.g.factor);
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    for (int part = 0; part < kTile; part += 8) {
        __m256 acc[kMaxHeads];
        for (auto& a : acc) a = _mm256_setzero_ps();
        for (int b = 0; b < c.blocks; b++) {
            fetch(next, c.g.layout.tile_bytes(), part / 8 * c.blocks + b, 4 * c.blocks);
            __m256i k[8], size[8];
            for (int j = 0; j < 8; j++) k[j] = load(tile + ((8 * b + j) * kTile + part) * 4), size[j] = _mm256_abs_epi8(k[j]);
            const __m256 dk = halves8(scales + 2 * (b * kTile + part));
            for (int h = 0; h < c.heads; h++) {
                const int8_t* q = c.g.q + (c.first_head + h) * c.dims + 32 * b;
                __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++)
                    dot = _mm256_add_epi32(dot, _mm256_madd_epi16(_mm256_maddubs_epi16(size[j], _mm256_sign_epi8(spread32(q + 4 * j), k[j])), ones));
                const __m256 dq = _mm256_set1_ps(c.g.d[(c.first_head + h) * c.blocks + b]);
                acc[h] = _mm256_fmadd_ps(_mm256_mul_ps(dq, dk), _mm256_cvtepi32_ps(dot), acc[h]);
            }
        }
        for (int h = 0; h < c.heads; h++) _mm256_storeu_ps(score[h] + part, _mm256_mul_ps(acc[h], factor));
    }
}

template <KvForm F> void scores_float(const Call& c, int h, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    __m256 acc[4];
    for (auto& a : acc) a = _mm256_setzero_ps();
    const float* q = c.g.qg + static_cast<size_t>(c.first_head + h) * 2 * c.dims;
    for (int e = 0; e < c.dims; e++) {
        if (h == 0) fetch(next, c.g.layout.tile_bytes(), e, c.dims);
        const __m256 qe = _mm256_set1_ps(q[e]);
        for (int l = 0; l < 4; l++) acc[l] = _mm256_fmadd_ps(qe, float8<F>(tile, static_cast<size_t>(e) * kTile + 8 * l), acc[l]);
    }
    for (int l = 0; l < 4; l++) _mm256_storeu_ps(score[h] + 8 * l, _mm256_mul_ps(acc[l], _mm256_set1_ps(c.g.factor)));
}

// values

// A head's weights for a block of 32 dimensions: w_int - 2^14, which fits in 16 bits. w = p * d_v; returns the step, 0 for weights too small to
// add anything: with 2^e <= max w < 2^(e + 1) it is 2^(e - 14).
LUCE_FN float quantize_weights(const float* p, const __m256 (&d)[4], int keys, int16_t* words) {
    const __m256i size = _mm256_set1_epi32(0x7fffffff), middle = _mm256_set1_epi32(1 << 14), index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 w[4];
    __m256i most = _mm256_setzero_si256();
    for (int l = 0; l < 4; l++) {  // absent keys weigh +0 whatever their scale is; bits of weights order like integers, NaN and Inf last
        const __m256i present = _mm256_cmpgt_epi32(_mm256_set1_epi32(keys - 8 * l), index);
        w[l] = _mm256_and_ps(_mm256_mul_ps(_mm256_loadu_ps(p + 8 * l), d[l]), _mm256_castsi256_ps(present));
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(w[l]), size));
    }
    const uint32_t top = largest(most);
    if (top < 0x0d800000u) return 0;  // 2^-100
    const bool finite = top < 0x7f800000u;
    const int exponent = finite ? static_cast<int>(top >> 23) - 127 : 0;
    const __m256 one_by_step = _mm256_set1_ps(ops::power_of_two(14 - exponent));
    for (int l = 0; l < 4; l += 2) {
        const __m256i w0 = _mm256_sub_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(w[l], one_by_step)), middle);
        const __m256i w1 = _mm256_sub_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(w[l + 1], one_by_step)), middle);
        _mm256_store_si256(reinterpret_cast<__m256i*>(words + 8 * l), _mm256_permute4x64_epi64(_mm256_packs_epi32(w0, w1), 0xd8));
    }
    return finite ? ops::power_of_two(exponent - 14) : ops::quiet_nan();
}

LUCE_FN __m256i four_words(const int16_t* p) {
    int64_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi64x(v);
}

void add_values_q8(const Call& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int keys, Part* parts) {
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    const __m256i ones = _mm256_set1_epi16(1);
    for (int b = 0; b < c.blocks; b++) {
        fetch(next, c.g.layout.tile_bytes(), b, c.blocks);
        alignas(32) int16_t words[kMaxHeads][kTile];
        float step[kMaxHeads];
        __m256 d[4];
        for (int l = 0; l < 4; l++) d[l] = halves8(scales + 2 * (b * kTile + 8 * l));
        for (int h = 0; h < c.heads; h++) step[h] = quantize_weights(p[h], d, keys, words[h]);
        for (int e = 32 * b; e < 32 * b + 32; e += 8) {
            __m256i v[8][2], taken[2];  // what subtracting 2^14 took away is 2^14 * (sum of v)
            taken[0] = taken[1] = _mm256_setzero_si256();
            for (int j = 0; j < 8; j++)
                for (int half = 0; half < 2; half++) {
                    const uint8_t* at = tile + (static_cast<size_t>(j) * c.dims + e + 4 * half) * 4;
                    v[j][half] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
                    taken[half] = _mm256_add_epi32(taken[half], _mm256_madd_epi16(v[j][half], ones));
                }
            for (int h = 0; h < c.heads; h++) {
                if (step[h] == 0) continue;
                __m256i sum[2] = {_mm256_slli_epi32(taken[0], 14), _mm256_slli_epi32(taken[1], 14)};
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    const __m256i w = four_words(words[h] + 4 * j);
                    for (int half = 0; half < 2; half++) sum[half] = _mm256_add_epi32(sum[half], _mm256_madd_epi16(v[j][half], w));
                }
                const __m256 total = _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[0], sum[1]), 0xd8));
                _mm256_store_ps(parts[h].o + e, _mm256_fmadd_ps(_mm256_set1_ps(step[h]), total, _mm256_load_ps(parts[h].o + e)));
            }
        }
    }
}

template <KvForm F> void add_values_float(const Call& c, int h, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int keys, Part* parts) {
    for (int e = 0; e < c.dims; e += 32) {
        __m256 o[4];
        for (int l = 0; l < 4; l++) o[l] = _mm256_load_ps(parts[h].o + e + 8 * l);
        if (h == 0) fetch(next, c.g.layout.tile_bytes(), e / 32, c.blocks);
        for (int i = 0; i < keys; i++)
            for (int l = 0; l < 4; l++) o[l] = _mm256_fmadd_ps(_mm256_set1_ps(p[h][i]), float8<F>(tile, static_cast<size_t>(i) * c.dims + e + 8 * l), o[l]);
        for (int l = 0; l < 4; l++) _mm256_store_ps(parts[h].o + e + 8 * l, o[l]);
    }
}

// softmax

// Scores of a tile become weights; the part's maximum, sum and values are rescaled.
LUCE_FN void weigh(float* p, int keys, int dims, Part& part) {
    for (int i = keys; i < kTile; i++) p[i] = -__builtin_inff();
    const __m256 a = _mm256_max_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)), b = _mm256_max_ps(_mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24));
    const float top = largest(_mm256_max_ps(a, b));
    if (!part.any) part.any = true, part.m = top;
    if (top > part.m) {
        const float c = ops::exp(part.m - top);
        part.m = top, part.l = part.l * c;
        for (int e = 0; e < dims; e += 8) _mm256_store_ps(part.o + e, _mm256_mul_ps(_mm256_load_ps(part.o + e), _mm256_set1_ps(c)));
    }
    for (int i = 0; i < kTile; i++) p[i] = ops::exp(p[i] - part.m);
    for (int i = keys; i < kTile; i++) p[i] = 0;
    part.l = part.l + tree32(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24));
}

// Later keys join earlier ones; the first part is taken as it is.
void merge(Part& a, const Part& b, int dims) {
    if (!a.any) {
        a = b;
        return;
    }
    const float m = ops::max(a.m, b.m), ea = ops::exp(a.m - m), eb = ops::exp(b.m - m);
    a.l = ops::fma(b.l, eb, a.l * ea), a.m = m;
    const __m256 va = _mm256_set1_ps(ea), vb = _mm256_set1_ps(eb);
    for (int e = 0; e < dims; e += 8)
        _mm256_store_ps(a.o + e, _mm256_fmadd_ps(_mm256_load_ps(b.o + e), vb, _mm256_mul_ps(_mm256_load_ps(a.o + e), va)));
}

// next: the tile after this one.
template <KvForm F> void attend_tile(const Call& c, const uint8_t* tile, const uint8_t* next, int keys, Part* parts) {
    alignas(64) float p[kMaxHeads][kTile];
    const uint8_t* values = tile + c.g.layout.tile_bytes();
    if constexpr (F == KvForm::Q8_0) scores_q8(c, tile, next, p);
    for (int h = 0; h < c.heads; h++) {
        if constexpr (F != KvForm::Q8_0) scores_float<F>(c, h, tile, next, p);
        weigh(p[h], keys, c.dims, parts[h]);
        if constexpr (F != KvForm::Q8_0) add_values_float<F>(c, h, values, next + c.g.layout.tile_bytes(), p, keys, parts);
    }
    if constexpr (F == KvForm::Q8_0) add_values_q8(c, values, next + c.g.layout.tile_bytes(), p, keys, parts);
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
        const Call c{g, first, g.heads - first < kMaxHeads ? g.heads - first : kMaxHeads, g.layout.head_dim, g.layout.head_dim / 32};
        switch (g.layout.form) {
            case KvForm::Q8_0: attend_heads<KvForm::Q8_0>(c); break;
            case KvForm::F16: attend_heads<KvForm::F16>(c); break;
            case KvForm::F32: attend_heads<KvForm::F32>(c); break;
        }
    }
}

}  // namespace lucebox::cpu::ymm
