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
LUCE_FN void clear(Part& p) {
    p.any = false, p.m = 0, p.l = 0;
    for (int e = 0; e < kMaxDim; e += 8) _mm256_store_ps(p.o + e, _mm256_setzero_ps());
}

// scores

void scores_q8(const Call& c, const uint8_t* tile, float (*score)[kTile]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 factor = _mm256_set1_ps(c.g.factor);
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    for (int part = 0; part < kTile; part += 8) {
        __m256 acc[kMaxHeads];
        for (auto& a : acc) a = _mm256_setzero_ps();
        for (int b = 0; b < c.blocks; b++) {
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

template <KvForm F> void scores_float(const Call& c, int h, const uint8_t* tile, float (*score)[kTile]) {
    __m256 acc[4];
    for (auto& a : acc) a = _mm256_setzero_ps();
    const float* q = c.g.qg + static_cast<size_t>(c.first_head + h) * 2 * c.dims;
    for (int e = 0; e < c.dims; e++) {
        const __m256 qe = _mm256_set1_ps(q[e]);
        for (int l = 0; l < 4; l++) acc[l] = _mm256_fmadd_ps(qe, float8<F>(tile, static_cast<size_t>(e) * kTile + 8 * l), acc[l]);
    }
    for (int l = 0; l < 4; l++) _mm256_storeu_ps(score[h] + 8 * l, _mm256_mul_ps(acc[l], _mm256_set1_ps(c.g.factor)));
}

// values

// The sums over keys of w_int * v_int for 8 dimensions: w_int - 2^14 fits in 16 bits; what that took away is 2^14 * (sum of v).
LUCE_FN __m256i value_sums(const uint8_t* tile, int dims, int e, const int16_t* w) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a = _mm256_setzero_si256(), b = a, all_a = a, all_b = a;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        const __m256i four = _mm256_set1_epi64x([&] { int64_t x; memcpy(&x, w + 4 * j, 8); return x; }());
        const __m256i v = load(tile + (static_cast<size_t>(j) * dims + e) * 4);
        const __m256i va = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v)), vb = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v, 1));
        a = _mm256_add_epi32(a, _mm256_madd_epi16(va, four)), b = _mm256_add_epi32(b, _mm256_madd_epi16(vb, four));
        all_a = _mm256_add_epi32(all_a, _mm256_madd_epi16(va, ones)), all_b = _mm256_add_epi32(all_b, _mm256_madd_epi16(vb, ones));
    }
    a = _mm256_add_epi32(a, _mm256_slli_epi32(all_a, 14)), b = _mm256_add_epi32(b, _mm256_slli_epi32(all_b, 14));
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);
}

void add_values_q8(const Call& c, const uint8_t* tile, float (*p)[kTile], int keys, Part* parts) {
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    const __m256i size = _mm256_set1_epi32(0x7fffffff), middle = _mm256_set1_epi32(1 << 14), index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int b = 0; b < c.blocks; b++)
        for (int h = 0; h < c.heads; h++) {
            // Absent keys weigh +0 whatever their scale is. Bits of weights order like integers, NaN and Inf last.
            __m256 w[4];
            __m256i most = _mm256_setzero_si256();
            for (int l = 0; l < 4; l++) {
                const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(p[h] + 8 * l), halves8(scales + 2 * (b * kTile + 8 * l)));
                w[l] = _mm256_and_ps(product, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(keys - 8 * l), index)));
                most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(w[l]), size));
            }
            const uint32_t top = largest(most);
            const bool finite = top < 0x7f800000u;
            if (top < 0x0d800000u) continue;  // 2^-100
            const int exponent = finite ? static_cast<int>(top >> 23) - 127 : 0;
            const __m256 step = _mm256_set1_ps(finite ? ops::power_of_two(exponent - 14) : ops::quiet_nan());
            const __m256 one_by_step = _mm256_set1_ps(ops::power_of_two(14 - exponent));
            alignas(32) int16_t words[kTile];
            for (int l = 0; l < 4; l += 2) {
                const __m256i w0 = _mm256_sub_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(w[l], one_by_step)), middle);
                const __m256i w1 = _mm256_sub_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(w[l + 1], one_by_step)), middle);
                _mm256_store_si256(reinterpret_cast<__m256i*>(words + 8 * l), _mm256_permute4x64_epi64(_mm256_packs_epi32(w0, w1), 0xd8));
            }
            for (int e = 32 * b; e < 32 * b + 32; e += 8) {
                const __m256 sum = _mm256_cvtepi32_ps(value_sums(tile, c.dims, e, words));
                _mm256_store_ps(parts[h].o + e, _mm256_fmadd_ps(step, sum, _mm256_load_ps(parts[h].o + e)));
            }
        }
}

template <KvForm F> void add_values_float(const Call& c, int h, const uint8_t* tile, float (*p)[kTile], int keys, Part* parts) {
    for (int e = 0; e < c.dims; e += 32) {
        __m256 o[4];
        for (int l = 0; l < 4; l++) o[l] = _mm256_load_ps(parts[h].o + e + 8 * l);
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

template <KvForm F> void attend_tile(const Call& c, const uint8_t* tile, int keys, Part* parts) {
    alignas(64) float p[kMaxHeads][kTile];
    const uint8_t* values = tile + c.g.layout.tile_bytes();
    if constexpr (F == KvForm::Q8_0) scores_q8(c, tile, p);
    for (int h = 0; h < c.heads; h++) {
        if constexpr (F != KvForm::Q8_0) scores_float<F>(c, h, tile, p);
        weigh(p[h], keys, c.dims, parts[h]);
        if constexpr (F != KvForm::Q8_0) add_values_float<F>(c, h, values, p, keys, parts);
    }
    if constexpr (F == KvForm::Q8_0) add_values_q8(c, values, p, keys, parts);
}

template <KvForm F> void attend_heads(const Call& c) {
    constexpr int kKeysAGroup = 4096;
    const AttendGroup& g = c.g;
    Part all[kMaxHeads], group[kMaxHeads], segment[kMaxHeads];
    for (int h = 0; h < c.heads; h++) clear(all[h]);
    for (int first = 0; first <= g.position; first += kKeysAGroup) {
        for (int h = 0; h < c.heads; h++) clear(group[h]);
        for (int s = first; s < first + kKeysAGroup && s <= g.position; s += ops::kPage) {
            const uint8_t* page = g.pages + static_cast<size_t>(g.table[s / ops::kPage]) * g.layout.page_bytes();
            for (int h = 0; h < c.heads; h++) clear(segment[h]);
            for (int t = s; t < s + ops::kPage && t <= g.position; t += kTile)
                attend_tile<F>(c, page + g.layout.tile_at(g.kv_head, (t - s) / kTile), g.position + 1 - t < kTile ? g.position + 1 - t : kTile, segment);
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
