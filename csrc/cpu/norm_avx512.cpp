// ops/norm.h in AVX-512: lanes are columns.
#include "cpu/lanes_avx512.h"
#include "cpu/rows_simd.h"
#include "cpu/simd.h"

namespace lucebox::cpu::zmm {

void norm_row(const float* x, const float* w, int n, float eps, float* y) { norm<Lanes>(x, w, n, eps, y); }

void quantize_row(const float* x, int n, int8_t* q, float* d, int32_t* sum) {
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    const __m128i one = _mm_set1_epi8(1);
    for (int g = 0; g < n / 32; g++) {
        const __m512 x0 = _mm512_loadu_ps(x + 32 * g), x1 = _mm512_loadu_ps(x + 32 * g + 16);
        // The bits of sizes order like integers, NaN and Inf last.
        const __m512i top = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x0), size), _mm512_and_si512(_mm512_castps_si512(x1), size));
        const uint32_t bits = _mm512_reduce_max_epu32(top);
        const bool finite = bits < 0x7f800000u;
        const float amax = ops::from_bits(bits);
        const bool zero = !finite || amax < 0x1p-100f;
        d[g] = !finite ? ops::quiet_nan() : zero ? 0.0f : amax / 127.0f;
        const __m512 inv = _mm512_set1_ps(127.0f / amax);
        const __mmask16 keep = zero ? 0 : 0xffff;
        const __m512i q0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x0, inv)), q1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x1, inv));
        const __m128i b0 = _mm512_cvtepi32_epi8(q0), b1 = _mm512_cvtepi32_epi8(q1);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 32 * g), b0);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 32 * g + 16), b1);
        const __m128i s0 = _mm_dpbusd_epi32(_mm_setzero_si128(), one, b0), s1 = _mm_dpbusd_epi32(_mm_setzero_si128(), one, b1);
        const __m128i s = _mm_hadd_epi32(_mm_hadd_epi32(s0, s1), _mm_setzero_si128());
        _mm_storel_epi64(reinterpret_cast<__m128i*>(sum + 2 * g), s);
    }
}

}  // namespace lucebox::cpu::zmm
