// What the AMD chips share. A wave is 32 lanes: wave32, or half of a wave64.
#pragma once
#include "hip/arch/maps.h"

namespace lucebox::hip {
namespace {

inline constexpr int kLeanThreads = 256;
// No chip here copies to workgroup memory past the registers: kernels load instead, and these copy at once.
inline constexpr bool kAsyncCopies = false, kSplitLevels = false;
LUCE_DEVICE void async_copy16(uint8_t* to, const uint8_t* from) { memcpy(to, from, 16); }
LUCE_DEVICE void async_commit() {}
template <int kPending> LUCE_DEVICE void async_wait() {}

// Byte j of the result is byte sel.byte[j] of {hi:lo}.
LUCE_DEVICE uint32_t perm(uint32_t hi, uint32_t lo, uint32_t sel) { return __builtin_amdgcn_perm(hi, lo, sel); }
// lo.byte[j] = table[low nibble of q.byte[j]], hi likewise of the high nibbles; the table is 16 bytes.
LUCE_DEVICE void lut16(uint32_t q, const uint32_t (&t)[4], uint32_t& lo, uint32_t& hi) {
    const uint32_t a = q & 0x0f0f0f0fu, b = (q >> 4) & 0x0f0f0f0fu, sa = a & 0x07070707u, sb = b & 0x07070707u;
    lo = perm(perm(t[3], t[2], sa), perm(t[1], t[0], sa), 0x03020100u | ((a & 0x08080808u) >> 1));
    hi = perm(perm(t[3], t[2], sb), perm(t[1], t[0], sb), 0x03020100u | ((b & 0x08080808u) >> 1));
}
// Keeps the compiler from hoisting the loads of a whole block: 172 to 238 VGPRs without it, 82 to 112 with it (gfx1201, clang 19).
LUCE_DEVICE void schedule_fence() { __builtin_amdgcn_sched_barrier(0); }
LUCE_DEVICE float half_to_float(uint32_t bits) {
    _Float16 h;
    const uint16_t b = static_cast<uint16_t>(bits);
    memcpy(&h, &b, 2);
    return static_cast<float>(h);
}
// N words of weights, read once and never again.
template <int N> LUCE_DEVICE void stream_load(uint32_t (&v)[N], const uint8_t* p) {
    static_assert(N == 1 || N == 2 || N == 4, "a load of 4, 8 or 16 bytes");
    typedef uint32_t Words __attribute__((ext_vector_type(N == 1 ? 2 : N)));
    if constexpr (N == 1) v[0] = *reinterpret_cast<const uint32_t*>(p);
    else {
        const Words t = *reinterpret_cast<const Words*>(p);
        for (int i = 0; i < N; i++) v[i] = t[i];
    }
}
LUCE_DEVICE void prefetch(const uint8_t*) {}  // no chip here has it for vector memory
// Orders a workgroup's accesses to device memory for all others; counts in device memory: the value before.
LUCE_DEVICE void device_fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
LUCE_DEVICE uint32_t atomic_next(uint32_t* p) { return __hip_atomic_fetch_add(p, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
LUCE_DEVICE float inverse_sqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
// a * b + c, a and b within 24 signed bits: full rate, where a 32-bit product is not.
LUCE_DEVICE int mad24(int a, int b, int c) {
    return (static_cast<int>(static_cast<uint32_t>(a) << 8) >> 8) * (static_cast<int>(static_cast<uint32_t>(b) << 8) >> 8) + c;
}
LUCE_DEVICE int lane_in_wave32() { return static_cast<int>(__builtin_amdgcn_mbcnt_lo(~0u, 0u)) & 31; }

}  // namespace
}  // namespace lucebox::hip
