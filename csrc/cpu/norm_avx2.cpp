// ops/norm.h in AVX2: lanes are columns.
#include "cpu/lanes_avx2.h"
#include "cpu/rows_simd.h"
#include "cpu/simd.h"

namespace lucebox::cpu::ymm {

void norm_row(const float* x, const float* w, int n, float eps, float* y) { norm<Lanes>(x, w, n, eps, y); }

void quantize_row(const float* x, int n, int8_t* q, float* d, int32_t* sum) {
    const __m256i size = _mm256_set1_epi32(0x7fffffff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int g = 0; g < n / 32; g++) {
        __m256 v[4];
        __m256i top = _mm256_setzero_si256();
        for (int l = 0; l < 4; l++) {
            v[l] = _mm256_loadu_ps(x + 32 * g + 8 * l);
            top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v[l]), size));
        }
        // The bits of sizes order like integers, NaN and Inf last.
        const uint32_t bits = largest(top);
        const bool finite = bits < 0x7f800000u;
        const float amax = ops::from_bits(bits);
        const bool zero = !finite || amax < 0x1p-100f;
        d[g] = !finite ? ops::quiet_nan() : zero ? 0.0f : amax / 127.0f;
        const __m256 inv = _mm256_set1_ps(127.0f / amax);
        __m256i w[4];
        for (int l = 0; l < 4; l++) w[l] = zero ? _mm256_setzero_si256() : _mm256_cvtps_epi32(_mm256_mul_ps(v[l], inv));
        const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(w[0], w[1]), _mm256_packs_epi32(w[2], w[3]));
        const __m256i bytes = _mm256_permutevar8x32_epi32(packed, order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * g), bytes);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
        __m256i s = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
        sum[2 * g] = _mm256_cvtsi256_si32(s), sum[2 * g + 1] = _mm256_extract_epi32(s, 4);
    }
}

}  // namespace lucebox::cpu::ymm
