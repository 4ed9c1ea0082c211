// ops/argmax.h in AVX-512: the maximum of a run first, then the place of it in the first run that holds the row's maximum.
#include "cpu/simd.h"
#include <immintrin.h>

namespace lucebox::cpu::zmm {

int32_t argmax_row(const float* logits, int n) {
    constexpr int kRun = 2048;
    int best_run = 0;
    float best = -__builtin_inff();
    for (int first = 0; first < n; first += kRun) {
        const int end = n - first < kRun ? n : first + kRun;
        __m512 top = _mm512_set1_ps(-__builtin_inff());
        __mmask16 nan = 0;
        for (int i = first; i < end; i += 16) {
            const __mmask16 present = end - i < 16 ? static_cast<__mmask16>((1u << (end - i)) - 1) : 0xffff;
            const __m512 x = _mm512_mask_loadu_ps(top, present, logits + i);
            nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
            top = _mm512_max_ps(top, x);
        }
        if (nan) return -1;
        const float run = _mm512_reduce_max_ps(top);
        if (run > best) best = run, best_run = first;
    }
    const __m512 wanted = _mm512_set1_ps(best);
    for (int i = best_run; i < n; i += 16) {
        const __mmask16 present = n - i < 16 ? static_cast<__mmask16>((1u << (n - i)) - 1) : 0xffff;
        const __mmask16 equal = _mm512_mask_cmp_ps_mask(present, _mm512_maskz_loadu_ps(present, logits + i), wanted, _CMP_EQ_OQ);
        if (equal) return i + __builtin_ctz(equal);
    }
    return 0;
}

}  // namespace lucebox::cpu::zmm
