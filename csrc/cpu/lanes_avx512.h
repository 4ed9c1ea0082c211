// Sums of the contract in AVX-512 (ops/norm.h).
#pragma once
#include "ops/math.h"
#include <immintrin.h>

namespace lucebox::cpu::zmm {

// Lanes 0 .. 15 and 16 .. 31 by the exchange tree.
LUCE_FN float tree32(__m512 x, __m512 y) {
    const __m512 v = _mm512_add_ps(x, y);
    const __m256 w = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 u = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    u = _mm_add_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
}

// lane_sum(x^2); n is a multiple of 32.
LUCE_FN float sum_squares(const float* x, int n) {
    float total = 0;
    for (int s = 0; s < n; s += 1024) {
        __m512 a = _mm512_setzero_ps(), b = a;
        for (int i = s; i < n && i < s + 1024; i += 32) {
            const __m512 x0 = _mm512_loadu_ps(x + i), x1 = _mm512_loadu_ps(x + i + 16);
            a = _mm512_fmadd_ps(x0, x0, a), b = _mm512_fmadd_ps(x1, x1, b);
        }
        total = s ? total + tree32(a, b) : tree32(a, b);
    }
    return total;
}

LUCE_FN float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

}  // namespace lucebox::cpu::zmm
