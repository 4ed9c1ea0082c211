// Sums and the quantiser of the contract in portable form (ops/norm.h).
#pragma once
#include "ops/math.h"

namespace lucebox::cpu {

// The exchange tree 16, 8, 4, 2, 1 over 32 lanes, as lane 0 sees it.
LUCE_FN float tree32(const float* lane) {
    float s[32];
    for (int l = 0; l < 32; l++) s[l] = lane[l];
    for (int d = 16; d; d /= 2)
        for (int l = 0; l < d; l++) s[l] = s[l] + s[l + d];
    return s[0];
}

// Sum of a(i) * b[i] over n elements; `a` is called so that f16 and bf16 weights need no copy.
template <class A> static inline float lane_sum(const A& a, const float* b, int n) {
    float total = 0;
    for (int s = 0; s < n; s += 1024) {
        float lane[32] = {};
        for (int i = s; i < n && i < s + 1024; i++) lane[i % 32] = ops::fma(a(i), b[i], lane[i % 32]);
        total = s ? total + tree32(lane) : tree32(lane);
    }
    return total;
}

// 32 values to int8; returns d.
LUCE_FN float quantize32(const float* x, int8_t* q) {
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) amax = ops::max(amax, ops::abs(x[i])), finite = finite && ops::is_finite(x[i]);
    const bool zero = !finite || amax < 0x1p-100f;
    const float inv = 127.0f / amax;
    for (int i = 0; i < 32; i++) q[i] = static_cast<int8_t>(zero ? 0 : ops::round_int(x[i] * inv));
    return !finite ? ops::quiet_nan() : zero ? 0.0f : amax / 127.0f;
}

}  // namespace lucebox::cpu
