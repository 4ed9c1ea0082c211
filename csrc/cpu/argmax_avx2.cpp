// ops/argmax.h in AVX2: the maximum of a run first, then the place of it in the first run that holds the row's maximum.
#include "cpu/lanes_avx2.h"
#include "cpu/simd.h"

namespace lucebox::cpu::ymm {

int32_t argmax_row(const float* logits, int n) {
    constexpr int kRun = 2048;
    int best_run = 0;
    float best = -__builtin_inff();
    for (int first = 0; first < n; first += kRun) {
        const int end = n - first < kRun ? n : first + kRun;
        __m256 top = _mm256_set1_ps(-__builtin_inff()), nan = _mm256_setzero_ps();
        int i = first;
        for (; i + 8 <= end; i += 8) {
            const __m256 x = _mm256_loadu_ps(logits + i);
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            top = _mm256_max_ps(top, x);
        }
        bool any_nan = _mm256_movemask_ps(nan) != 0;
        float run = largest(top);
        for (; i < end; i++) {
            any_nan = any_nan || logits[i] != logits[i];
            run = ops::max(run, logits[i]);
        }
        if (any_nan) return -1;
        if (run > best) best = run, best_run = first;
    }
    for (int i = best_run; i < n; i++)
        if (logits[i] == best) return i;
    return 0;
}

}  // namespace lucebox::cpu::ymm
