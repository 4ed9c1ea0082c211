// NVIDIA through CUDA: mma.m16n8k32 and m16n8k16 with weights as the first operand.
#pragma once
#include "hip/arch/maps.h"

namespace lucebox::hip {
namespace {

struct Map : MapNvidia {};

LUCE_DEVICE uint32_t shfl_xor(uint32_t v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
LUCE_DEVICE int dot4(uint32_t a, uint32_t b, int c) { return __dp4a(static_cast<int>(a), static_cast<int>(b), c); }
LUCE_DEVICE int dot4_unsigned(uint32_t a, uint32_t b, int c) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}
// The compiler takes this for the same in all lanes, and loops that depend on it for loops that the wave runs together.
LUCE_DEVICE int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
LUCE_DEVICE void schedule_fence() {}
LUCE_DEVICE float half_to_float(uint32_t bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(static_cast<uint16_t>(bits)));
    return f;
}
// N words of weights, read once and never again.
template <int N> LUCE_DEVICE void stream_load(uint32_t (&v)[N], const uint8_t* p) {
    static_assert(N == 1 || N == 2 || N == 4, "a load of 4, 8 or 16 bytes");
    if constexpr (N == 1) asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v[0]) : "l"(p));
    if constexpr (N == 2) asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(p));
    if constexpr (N == 4)
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(p));
}
// A line of 128 bytes on its way to the cache.
LUCE_DEVICE void prefetch(const uint8_t* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
LUCE_DEVICE void device_fence() { __threadfence(); }
LUCE_DEVICE uint32_t atomic_next(uint32_t* p) { return atomicAdd(p, 1u); }
LUCE_DEVICE float inverse_sqrt(float x) { return 1.0f / __fsqrt_rn(x); }
LUCE_DEVICE int mad24(int a, int b, int c) { return a * b + c; }

// What tile kernels of few registers are compiled for: with one wave more than they have, ptxas keeps to 96 registers, and four workgroups of five
// waves fit where three do.
inline constexpr int kLeanThreads = 288;
inline constexpr bool kAsyncCopies = true, kSplitLevels = true;
// 16 bytes from device to workgroup memory, past the registers; a lane waits until at most kPending of the groups it committed are on their way.
LUCE_DEVICE void async_copy16(uint8_t* to, const uint8_t* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
LUCE_DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending> LUCE_DEVICE void async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }

// Bytes of {hi:lo} by the four low nibbles of sel; a nibble of 8 and more gives the sign of byte nibble - 8, as 0 or -1.
LUCE_DEVICE uint32_t pick(uint32_t hi, uint32_t lo, uint32_t sel) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(lo), "r"(hi), "r"(sel));
    return r;
}
LUCE_DEVICE uint32_t perm(uint32_t hi, uint32_t lo, uint32_t sel) {  // selectors are nibbles there
    return __byte_perm(lo, hi, (sel & 0x7u) | ((sel >> 4) & 0x70u) | ((sel >> 8) & 0x700u) | ((sel >> 12) & 0x7000u));
}
LUCE_DEVICE void lut16(uint32_t q, const uint32_t (&t)[4], uint32_t& lo, uint32_t& hi) {
    const uint32_t pick = 0x32103210u | ((q & 0x88888888u) >> 1), at = q & 0x77777777u;
    const uint32_t a = __byte_perm(__byte_perm(t[0], t[1], at), __byte_perm(t[2], t[3], at), pick);
    const uint32_t b = __byte_perm(__byte_perm(t[0], t[1], at >> 16), __byte_perm(t[2], t[3], at >> 16), pick >> 16);
    lo = __byte_perm(a, b, 0x6420), hi = __byte_perm(a, b, 0x7531);
}

template <int kRows, bool kSigned = true, int kStart = 0, bool kOnto = false>
LUCE_DEVICE void tile32(int (&d)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
#define LUCE_MMA32(type, first, x0, x1) \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \
        : "+r"(d[first]), "+r"(d[first + 1]), "+r"(d[first + 2]), "+r"(d[first + 3]) \
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1))
    if constexpr (!kOnto)
        for (int i = 0; i < 8; i++) d[i] = kRows > 8 || i < 4 ? kStart : 0;
    if constexpr (kSigned) LUCE_MMA32("s8", 0, x[0], x[2]);
    else LUCE_MMA32("u8", 0, x[0], x[2]);
    if constexpr (kRows > 8 && kSigned) LUCE_MMA32("s8", 4, x[1], x[3]);
    if constexpr (kRows > 8 && !kSigned) LUCE_MMA32("u8", 4, x[1], x[3]);
#undef LUCE_MMA32
}
template <int kRows> LUCE_DEVICE void tile16(int (&d0)[8], int (&d1)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
#define LUCE_MMA16(d, first, w0, w1, x0) \
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%7,%7,%7};" \
        : "=r"(d[first]), "=r"(d[first + 1]), "=r"(d[first + 2]), "=r"(d[first + 3]) : "r"(w0), "r"(w1), "r"(x0), "r"(0))
    LUCE_MMA16(d0, 0, w[0], w[1], x[0]);
    LUCE_MMA16(d1, 0, w[2], w[3], x[2]);
    if constexpr (kRows > 8) {
        LUCE_MMA16(d0, 4, w[0], w[1], x[1]);
        LUCE_MMA16(d1, 4, w[2], w[3], x[3]);
    } else {
        for (int i = 4; i < 8; i++) d0[i] = d1[i] = 0;
    }
#undef LUCE_MMA16
}

}  // namespace
}  // namespace lucebox::hip
