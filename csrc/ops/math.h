// The contract's arithmetic on single floats: integer moves, rounding, exp, sigmoid, SiLU, softplus. Host and device.
// These constants and this order of operations are the definition (docs/numerics.md); changing one is a change of the contract.
// Only + - * / fma and comparisons, each correctly rounded, so that every compiler and chip returns the same bits.
// Largest error in ulp over the range in use: exp 0.8, sigmoid 0.8, SiLU 1.1, softplus 1.6 (tests/csrc/ops/test_math.py).
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__) || defined(__HIP__)
#define LUCE_FN __host__ __device__ static inline
#else
// Always inlined: units compiled for other instruction sets must not share an out-of-line copy.
#define LUCE_FN [[maybe_unused]] static inline __attribute__((always_inline))
#endif

namespace lucebox::ops {

LUCE_FN float fma(float a, float b, float c) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}
LUCE_FN float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
LUCE_FN uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
LUCE_FN float abs(float x) { return from_bits(to_bits(x) & 0x7fffffffu); }
LUCE_FN float max(float a, float b) { return b > a ? b : a; }
LUCE_FN bool is_finite(float x) { return (to_bits(x) & 0x7f800000u) != 0x7f800000u; }
LUCE_FN float quiet_nan() { return from_bits(0x7fc00000u); }
LUCE_FN float power_of_two(int e) { return from_bits(static_cast<uint32_t>(e + 127) << 23); }  // -126 <= e <= 127

// Round half to even for |x| < 2^22: the sum with 1.5 * 2^23 leaves the integer in the low mantissa bits.
LUCE_FN int round_int(float x) { return static_cast<int>(to_bits(x + 12582912.0f) - 0x4b400000u); }

LUCE_FN float from_f16(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
    if (e == 31) return from_bits(sign | 0x7f800000u | m << 13);
    if (e == 0) return from_bits(sign | to_bits(static_cast<float>(m) * 0x1p-24f));
    return from_bits(sign | (e + 112) << 23 | m << 13);
}
// Round to nearest even, subnormals kept, Inf from 65,520 on, NaN stays NaN.
LUCE_FN uint16_t to_f16(float x) {
    const uint32_t u = to_bits(x), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
    if (a < 0x38800000) return static_cast<uint16_t>(sign | static_cast<uint32_t>(round_int(from_bits(a) * 0x1p24f)));
    return static_cast<uint16_t>(sign | ((a + 0xfff + ((a >> 13) & 1) - 0x38000000) >> 13));
}
LUCE_FN float from_bf16(uint16_t b) { return from_bits(static_cast<uint32_t>(b) << 16); }

// e^x = hi + lo. x = n ln2 + r, r in [-ln2/2, ln2/2]; the last product by a power of two rounds once, so subnormal results are right too.
struct ExpPair {
    float hi, lo;
};
LUCE_FN ExpPair exp_pair(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -105.0f ? -105.0f : x;
    const float t = fma(x, 0x1.715476p+0f, 12582912.0f), n = t - 12582912.0f;
    const float r = fma(n, -0x1.7f7d1cp-20f, fma(n, -0x1.62e4p-1f, x));
    float q = fma(0x1.6d5168p-10f, r, 0x1.123e4cp-7f);
    q = fma(q, r, 0x1.5554e4p-5f);
    q = fma(q, r, 0x1.55548ap-3f);
    q = fma(q, r, 0x1p-1f);
    const float one_r = 1.0f + r, tail = fma(r * r, q, r - (one_r - 1.0f));
    const float p = one_r + tail, rest = tail - (p - one_r);
    const int k = static_cast<int>(to_bits(t) - 0x4b400000u), k1 = k >> 1, k2 = k - k1;
    const float s1 = power_of_two(k1), s2 = power_of_two(k2);
    return {(p * s1) * s2, (rest * s1) * s2};
}
LUCE_FN float exp(float x) { return exp_pair(x).hi; }

// (nh + nl) / (1 + e), one division and one correction.
LUCE_FN float over_one_plus(float nh, float nl, ExpPair e) {
    const float d = 1.0f + e.hi, dl = (e.hi - (d - 1.0f)) + e.lo, inv = 1.0f / d, q = nh * inv;
    return fma(fma(-q, d, nh) + fma(-q, dl, nl), inv, q);
}
LUCE_FN float sigmoid(float x) {
    const ExpPair e = exp_pair(-abs(x));
    return over_one_plus(x >= 0 ? 1.0f : e.hi, x >= 0 ? 0.0f : e.lo, e);
}
LUCE_FN float silu(float x) {
    const ExpPair e = exp_pair(-abs(x));
    const float nh = x * e.hi, nl = fma(x, e.lo, fma(x, e.hi, -nh));
    return over_one_plus(x >= 0 ? x : nh, x >= 0 ? 0.0f : nl, e);
}
// (1 - e^-2|x|) / (1 + e^-2|x|), with the sign of x.
LUCE_FN float tanh(float x) {
    const ExpPair e = exp_pair(-2.0f * abs(x));
    const float n = 1.0f - e.hi, y = over_one_plus(n, ((1.0f - n) - e.hi) - e.lo, e);
    return x < 0 ? -y : y;
}
// log(1 + e^x) = max(x, 0) + log1p(e^-|x|); x itself above 20.
LUCE_FN float softplus(float x) {
    const float t = exp(-abs(x));
    const bool high = t >= 0.5f;  // 1 + t = 2 (1 + f)
    const float f = high ? (t - 1.0f) * 0.5f : t, s = f / (2.0f + f), z = s * s, h = (f * 0.5f) * f;
    float g = fma(0x1.ee8dacp-3f, z, 0x1.23e0cep-2f);
    g = fma(g, z, 0x1.999c0ap-2f);
    g = fma(g, z, 0x1.555554p-1f);
    const float c = h - s * fma(g, z, h);  // log1p(f) = f - c
    const float l = (high ? 0x1.62e43p-1f : 0.0f) + (f - (c - (high ? -0x1.05c61p-29f : 0.0f)));
    const float y = x > 0 ? x + l : l;
    return x > 20.0f ? x : y;
}

}  // namespace lucebox::ops
