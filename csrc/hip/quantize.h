// quantize of ops/norm.h in a wave: four values a lane, eight lanes a group of 32.
#pragma once
#include "hip/compat.h"
#include "hip/params.h"

namespace lucebox::hip {
namespace {

struct Quantized {
    uint32_t word;    // the lane's four int8
    float d;          // of its group
    int low, high;    // sums of the group's first and last 16, in lanes whose quad is 0
};

// v: values 4 l .. 4 l + 3 of the group, l = lane % 8. All lanes of a wave take part; those without a group pass zeros.
LUCE_DEVICE Quantized quantize4(const float (&v)[4]) {
    uint32_t top = 0;
    LUCE_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t a = ops::to_bits(v[i]) & 0x7fffffffu;  // sizes order like their bits, NaN and Inf above all
        top = a > top ? a : top;
    }
    top = larger(top, shfl_xor(top, 1));
    top = larger(top, shfl_xor(top, 2));
    top = larger(top, shfl_xor(top, 4));
    const bool finite = top < 0x7f800000u;
    const float amax = ops::from_bits(top), inv = 127.0f / amax;
    const bool zero = !finite || amax < 0x1p-100f;
    Quantized r{0, !finite ? ops::quiet_nan() : zero ? 0.0f : amax / 127.0f, 0, 0};
    LUCE_UNROLL
    for (int i = 0; i < 4; i++) {
        const int q = zero ? 0 : ops::round_int(v[i] * inv);
        r.word |= (static_cast<uint32_t>(q) & 255u) << (8 * i);
        r.low += q;
    }
    r.low += static_cast<int>(shfl_xor(static_cast<uint32_t>(r.low), 1));
    r.low += static_cast<int>(shfl_xor(static_cast<uint32_t>(r.low), 2));
    r.high = static_cast<int>(shfl_xor(static_cast<uint32_t>(r.low), 4));
    return r;
}

// The same, stored as `group` of a row (params.h); lanes without a group pass live = false.
LUCE_DEVICE void quantize_store(const Rows& y, int row, int group, const float (&v)[4], bool live) {
    const int quad = lane_id() & 7;
    const Quantized t = quantize4(v);
    if (!live) return;
    const size_t at = (static_cast<size_t>(row / kTileRows) * static_cast<size_t>(y.columns / 32) + static_cast<size_t>(group)) * kTileRows;
    const size_t r = static_cast<size_t>(row % kTileRows);
    *reinterpret_cast<uint32_t*>(y.q + (at + r) * 32 + static_cast<size_t>(quad % 4 * 8 + quad / 4 * 4)) = t.word;
    if (quad != 0) return;
    y.d[at + r] = t.d;
    y.sums[2 * at + r] = t.d * static_cast<float>(t.low + t.high);
    y.sums[2 * at + kTileRows + r] = ops::from_bits((static_cast<uint32_t>(t.low) & 0xffffu) | static_cast<uint32_t>(t.high) << 16);
}

LUCE_DEVICE void load4(float (&v)[4], const float* p) {
    const Float4 t = *reinterpret_cast<const Float4*>(p);
    v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
}
LUCE_DEVICE void store4(float* p, const float (&v)[4]) { *reinterpret_cast<Float4*>(p) = Float4{v[0], v[1], v[2], v[3]}; }

}  // namespace
}  // namespace lucebox::hip
