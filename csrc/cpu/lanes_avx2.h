// The vectors of the AVX2 variant, for what is written once for all (rows_simd.h, attention_simd.h), and loads.
#pragma once
#include "ops/math.h"
#include <immintrin.h>

namespace lucebox::cpu::ymm {

LUCE_FN float largest(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
LUCE_FN uint32_t largest(__m256i x) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

struct Lanes {
    using V = __m256;
    static constexpr int kWidth = 8;
    [[gnu::always_inline]] static V load(const float* p) { return _mm256_loadu_ps(p); }
    [[gnu::always_inline]] static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
    [[gnu::always_inline]] static V all(float x) { return _mm256_set1_ps(x); }
    [[gnu::always_inline]] static V add(V a, V b) { return _mm256_add_ps(a, b); }
    [[gnu::always_inline]] static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
    [[gnu::always_inline]] static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
    [[gnu::always_inline]] static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
    [[gnu::always_inline]] static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
    // 32 lanes by the exchange tree 16, 8, 4, 2, 1.
    [[gnu::always_inline]] static float tree32(const V (&lane)[4]) {
        const __m256 v = _mm256_add_ps(_mm256_add_ps(lane[0], lane[2]), _mm256_add_ps(lane[1], lane[3]));
        __m128 u = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        u = _mm_add_ps(u, _mm_movehl_ps(u, u));
        return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
    }
    // Of 32 floats, the first `n` of them present; the others are set to -inf.
    [[gnu::always_inline]] static float largest(float* p, int n) {
        for (int i = n; i < 32; i++) p[i] = -__builtin_inff();
        return ymm::largest(_mm256_max_ps(_mm256_max_ps(load(p), load(p + 8)), _mm256_max_ps(load(p + 16), load(p + 24))));
    }
};

LUCE_FN __m256 halves8(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
LUCE_FN __m256i load(const void* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
LUCE_FN __m256i spread32(const void* p) {
    int v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

}  // namespace lucebox::cpu::ymm
