// Sums of the contract in AVX2 (ops/norm.h): 32 lanes are four vectors.
#pragma once
#include "ops/math.h"
#include <immintrin.h>

namespace lucebox::cpu::ymm {

// The exchange tree 16, 8, 4, 2, 1.
LUCE_FN float tree32(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256 v = _mm256_add_ps(_mm256_add_ps(a, c), _mm256_add_ps(b, d));
    __m128 u = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    u = _mm_add_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
}

// lane_sum(x^2); n is a multiple of 32.
LUCE_FN float sum_squares(const float* x, int n) {
    float total = 0;
    for (int s = 0; s < n; s += 1024) {
        __m256 a[4];
        for (auto& lane : a) lane = _mm256_setzero_ps();
        for (int i = s; i < n && i < s + 1024; i += 32)
            for (int l = 0; l < 4; l++) {
                const __m256 v = _mm256_loadu_ps(x + i + 8 * l);
                a[l] = _mm256_fmadd_ps(v, v, a[l]);
            }
        const float sum = tree32(a[0], a[1], a[2], a[3]);
        total = s ? total + sum : sum;
    }
    return total;
}

LUCE_FN float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

LUCE_FN __m256 halves8(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
LUCE_FN __m256i load(const void* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
LUCE_FN __m256i spread32(const void* p) {
    int v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}
LUCE_FN uint32_t largest(__m256i x) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
LUCE_FN float largest(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

}  // namespace lucebox::cpu::ymm
