// ops/deltanet.h in AVX2: lanes are channels or values.
#include "cpu/elementwise.h"
#include "cpu/lanes_avx2.h"
#include "cpu/simd.h"

namespace lucebox::cpu::ymm {

using ops::kHeadDim;

void conv_silu(const float* const* taps, const float* conv, int first, int last, float* y) {
    conv_silu_loop(taps[0], taps[1], taps[2], taps[3], conv, first, last, y);
}

void l2_norm(float* x, float eps, bool query) {
    const __m256 r = _mm256_set1_ps(1.0f / sqrt(sum_squares(x, kHeadDim) + eps)), factor = _mm256_set1_ps(0x1.6a09e6p-4f);
    for (int i = 0; i < kHeadDim; i += 8) {
        const __m256 k = _mm256_mul_ps(_mm256_loadu_ps(x + i), r);
        _mm256_storeu_ps(x + i, query ? _mm256_mul_ps(k, factor) : k);
    }
}

namespace {
// (a0 + a1) + (a2 + a3) of the four key chains.
LUCE_FN __m256 join(const __m256 (&a)[4][2], int h) { return _mm256_add_ps(_mm256_add_ps(a[0][h], a[1][h]), _mm256_add_ps(a[2][h], a[3][h])); }
}  // namespace

// 16 values at a time: 8 KB of the state, so that the second pass reads it from the first cache. S is decayed again instead of stored twice.
void delta(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o) {
    constexpr int kChain = kHeadDim / 4;
    const __m256 dv = _mm256_set1_ps(decay), bv = _mm256_set1_ps(beta);
    for (int j = 0; j < kHeadDim; j += 16) {
        __m256 a[4][2], u[2];
        for (auto& c : a) c[0] = c[1] = _mm256_setzero_ps();
        for (int i = 0; i < kChain; i++)
            for (int c = 0; c < 4; c++)
                for (int h = 0; h < 2; h++) {
                    const int key = kChain * c + i;
                    const __m256 s = _mm256_mul_ps(_mm256_loadu_ps(S + key * kHeadDim + j + 8 * h), dv);
                    a[c][h] = _mm256_fmadd_ps(s, _mm256_set1_ps(k[key]), a[c][h]);
                }
        for (int h = 0; h < 2; h++) u[h] = _mm256_mul_ps(bv, _mm256_sub_ps(_mm256_loadu_ps(v + j + 8 * h), join(a, h)));
        for (auto& c : a) c[0] = c[1] = _mm256_setzero_ps();
        for (int i = 0; i < kChain; i++)
            for (int c = 0; c < 4; c++)
                for (int h = 0; h < 2; h++) {
                    const int key = kChain * c + i;
                    float* at = S + key * kHeadDim + j + 8 * h;
                    const __m256 s = _mm256_fmadd_ps(_mm256_set1_ps(k[key]), u[h], _mm256_mul_ps(_mm256_loadu_ps(at), dv));
                    _mm256_storeu_ps(at, s);
                    a[c][h] = _mm256_fmadd_ps(s, _mm256_set1_ps(q[key]), a[c][h]);
                }
        for (int h = 0; h < 2; h++) _mm256_storeu_ps(o + j + 8 * h, join(a, h));
    }
}

void gated_norm(const float* o, const float* norm, const float* z, float eps, float* y) {
    float normed[kHeadDim];
    norm_row(o, norm, kHeadDim, eps, normed);
    for (int i = 0; i < kHeadDim; i++) y[i] = normed[i] * ops::silu(z[i]);
}

}  // namespace lucebox::cpu::ymm
