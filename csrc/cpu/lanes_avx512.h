// The vectors of the AVX-512 variant, for what is written once for all (rows_simd.h, attention_simd.h), and loads.
#pragma once
#include "ops/math.h"
#include <immintrin.h>

namespace lucebox::cpu::zmm {

struct Lanes {
    using V = __m512;
    static constexpr int kWidth = 16;
    [[gnu::always_inline]] static V load(const float* p) { return _mm512_loadu_ps(p); }
    [[gnu::always_inline]] static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
    [[gnu::always_inline]] static V all(float x) { return _mm512_set1_ps(x); }
    [[gnu::always_inline]] static V add(V a, V b) { return _mm512_add_ps(a, b); }
    [[gnu::always_inline]] static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
    [[gnu::always_inline]] static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
    [[gnu::always_inline]] static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
    [[gnu::always_inline]] static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
    // 32 lanes by the exchange tree 16, 8, 4, 2, 1.
    [[gnu::always_inline]] static float tree32(const V (&lane)[2]) {
        const __m512 v = _mm512_add_ps(lane[0], lane[1]);
        const __m256 w = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
        __m128 u = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
        u = _mm_add_ps(u, _mm_movehl_ps(u, u));
        return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
    }
    // Of 32 floats, the first `n` of them present.
    [[gnu::always_inline]] static float largest(const float* p, int n) {
        const uint32_t present = n < 32 ? (1u << n) - 1 : ~0u;
        const __m512 least = _mm512_set1_ps(-__builtin_inff());
        const __m512 a = _mm512_mask_loadu_ps(least, static_cast<__mmask16>(present), p), b = _mm512_mask_loadu_ps(least, static_cast<__mmask16>(present >> 16), p + 16);
        return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
    }
};

LUCE_FN __m512i load(const void* p) { return _mm512_loadu_si512(p); }
LUCE_FN __m512i spread32(const void* p) {
    int v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}
LUCE_FN __m512 halves16(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }

}  // namespace lucebox::cpu::zmm
