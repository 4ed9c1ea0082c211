// ops/attention.h in AVX2: the products of one tile.
#include "cpu/attention_simd.h"
#include "cpu/lanes_avx2.h"
#include "cpu/simd.h"

namespace lucebox::cpu::ymm {

namespace {

template <KvForm F> LUCE_FN __m256 float8(const uint8_t* tile, size_t index) {
    if constexpr (F == KvForm::F16) return halves8(tile + 2 * index);
    else return _mm256_loadu_ps(reinterpret_cast<const float*>(tile + 4 * index));
}
// scores

void scores_q8(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 factor = _mm256_set1_ps(c.g.factor);
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    for (int part = 0; part < kTile; part += 8) {
        __m256 acc[kMaxHeads];
        for (auto& a : acc) a = _mm256_setzero_ps();
        for (int b = 0; b < c.blocks; b++) {
            fetch(next, c.tile_bytes, part / 8 * c.blocks + b, 4 * c.blocks);
            __m256i k[8], size[8];
            for (int j = 0; j < 8; j++) k[j] = load(tile + ((8 * b + j) * kTile + part) * 4), size[j] = _mm256_abs_epi8(k[j]);
            const __m256 dk = halves8(scales + 2 * (b * kTile + part));
            for (int h = 0; h < c.count; h++) {
                const int8_t* q = c.g.q + (c.first + h) * c.dims + 32 * b;
                __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++)
                    dot = _mm256_add_epi32(dot, _mm256_madd_epi16(_mm256_maddubs_epi16(size[j], _mm256_sign_epi8(spread32(q + 4 * j), k[j])), ones));
                const __m256 dq = _mm256_set1_ps(c.g.d[(c.first + h) * c.blocks + b]);
                acc[h] = _mm256_fmadd_ps(_mm256_mul_ps(dq, dk), _mm256_cvtepi32_ps(dot), acc[h]);
            }
        }
        for (int h = 0; h < c.count; h++) _mm256_storeu_ps(score[h] + part, _mm256_mul_ps(acc[h], factor));
    }
}

template <KvForm F> void scores_float(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    for (int h = 0; h < c.count; h++) {
        __m256 acc[4];
        for (auto& a : acc) a = _mm256_setzero_ps();
        const float* q = c.g.qg + static_cast<size_t>(c.first + h) * c.g.stride();
        for (int e = 0; e < c.dims; e++) {
            if (h == 0) fetch(next, c.tile_bytes, e, c.dims);
            const __m256 qe = _mm256_set1_ps(q[e]);
            for (int l = 0; l < 4; l++) acc[l] = _mm256_fmadd_ps(qe, float8<F>(tile, static_cast<size_t>(e) * kTile + 8 * l), acc[l]);
        }
        for (int l = 0; l < 4; l++) _mm256_storeu_ps(score[h] + 8 * l, _mm256_mul_ps(acc[l], _mm256_set1_ps(c.g.factor)));
    }
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

void add_values_q8(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int, int keys, Part* parts) {
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    const __m256i ones = _mm256_set1_epi16(1);
    for (int b = 0; b < c.blocks; b++) {
        fetch(next, c.tile_bytes, b, c.blocks);
        alignas(32) int16_t words[kMaxHeads][kTile];
        float step[kMaxHeads];
        __m256 d[4];
        for (int l = 0; l < 4; l++) d[l] = halves8(scales + 2 * (b * kTile + 8 * l));
        for (int h = 0; h < c.count; h++) step[h] = quantize_weights(p[h], d, keys, words[h]);
        for (int e = 32 * b; e < 32 * b + 32; e += 8) {
            __m256i v[8][2], taken[2];  // what subtracting 2^14 took away is 2^14 * (sum of v)
            taken[0] = taken[1] = _mm256_setzero_si256();
            for (int j = 0; j < 8; j++)
                for (int half = 0; half < 2; half++) {
                    const uint8_t* at = tile + (static_cast<size_t>(j) * c.dims + e + 4 * half) * 4;
                    v[j][half] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
                    taken[half] = _mm256_add_epi32(taken[half], _mm256_madd_epi16(v[j][half], ones));
                }
            for (int h = 0; h < c.count; h++) {
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

template <KvForm F> void add_values_float(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int from, int keys, Part* parts) {
    for (int h = 0; h < c.count; h++)
        for (int e = 0; e < c.dims; e += 32) {
            __m256 o[4];
            for (int l = 0; l < 4; l++) o[l] = _mm256_load_ps(parts[h].o + e + 8 * l);
            if (h == 0) fetch(next, c.tile_bytes, e / 32, c.blocks);
            for (int i = from; i < keys; i++)
                for (int l = 0; l < 4; l++) o[l] = _mm256_fmadd_ps(_mm256_set1_ps(p[h][i]), float8<F>(tile, static_cast<size_t>(i) * c.dims + e + 8 * l), o[l]);
            for (int l = 0; l < 4; l++) _mm256_store_ps(parts[h].o + e + 8 * l, o[l]);
        }
}

template <KvForm F> void attend_form(const AttendGroup& g) {
    by_heads(g, [](const Heads& c) {
        if constexpr (F == KvForm::Q8_0)
            attend_heads<Lanes>(
                c, [&c](auto... args) { scores_q8(c, args...); }, [&c](auto... args) { add_values_q8(c, args...); });
        else
            attend_heads<Lanes>(
                c, [&c](auto... args) { scores_float<F>(c, args...); }, [&c](auto... args) { add_values_float<F>(c, args...); });
    });
}

}  // namespace

void rotate(float* x, const float* cos, const float* sin, int half) { rotate_pairs(x, cos, sin, half); }

void store_kv(const KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key) {
    if (layout.form != KvForm::Q8_0) return store_floats(layout, tile, x, key, is_key);
    int8_t q[kMaxDim];
    float d[kMaxDim / 32];
    int32_t sum[kMaxDim / 16];
    quantize_row(x, layout.head_dim, q, d, sum);
    store_q8(layout, tile, q, d, key, is_key);
}

void attend(const AttendGroup& g) {
    switch (g.layout.form) {
        case KvForm::Q8_0: return attend_form<KvForm::Q8_0>(g);
        case KvForm::F16: return attend_form<KvForm::F16>(g);
        case KvForm::F32: return attend_form<KvForm::F32>(g);
    }
}

}  // namespace lucebox::cpu::ymm
