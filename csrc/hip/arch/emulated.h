// A chip on the CPU: its own fragment maps, its matrix instructions by their operand maps as the vendor documents them.
// LUCE_EMULATED_CHIP is 12, 11, 9 or 90 (NVIDIA).
#pragma once
#include "hip/arch/maps.h"
#include <cmath>

namespace lucebox::hip {
namespace {

LUCE_DEVICE uint32_t shfl_xor(uint32_t v, int mask) { return emulator::exchange(v, (emulator::current_lane()) ^ mask); }
LUCE_DEVICE uint32_t shfl(uint32_t v, int source) { return emulator::exchange(v, source); }
LUCE_DEVICE int dot4(uint32_t a, uint32_t b, int c) {
    for (int j = 0; j < 32; j += 8) c += static_cast<int8_t>(a >> j) * static_cast<int8_t>(b >> j);
    return c;
}
LUCE_DEVICE int dot4_unsigned(uint32_t a, uint32_t b, int c) {
    for (int j = 0; j < 32; j += 8) c += static_cast<uint8_t>(a >> j) * static_cast<int8_t>(b >> j);
    return c;
}
LUCE_DEVICE int uniform(int x) { return x; }
LUCE_DEVICE void schedule_fence() {}
LUCE_DEVICE float half_to_float(uint32_t bits) { return ops::from_f16(static_cast<uint16_t>(bits)); }
template <int N> LUCE_DEVICE void stream_load(uint32_t (&v)[N], const uint8_t* p) { memcpy(v, __builtin_assume_aligned(p, 4 * N), 4 * N); }
LUCE_DEVICE void prefetch(const uint8_t*) {}
LUCE_DEVICE void device_fence() {}
LUCE_DEVICE uint32_t atomic_next(uint32_t* p) { return (*p)++; }
LUCE_DEVICE float inverse_sqrt(float x) { return 1.0f / std::sqrt(x); }
LUCE_DEVICE int mad24(int a, int b, int c) { return a * b + c; }
LUCE_DEVICE uint32_t perm(uint32_t hi, uint32_t lo, uint32_t sel) {
    const uint64_t both = static_cast<uint64_t>(hi) << 32 | lo;
    uint32_t r = 0;
    for (int j = 0; j < 32; j += 8) r |= static_cast<uint32_t>(both >> (8 * ((sel >> j) & 7)) & 255) << j;
    return r;
}
inline constexpr int kLeanThreads = 256;
LUCE_DEVICE void async_copy16(uint8_t* to, const uint8_t* from) { memcpy(to, from, 16); }
LUCE_DEVICE void async_commit() {}
template <int kPending> LUCE_DEVICE void async_wait() {}
#if LUCE_EMULATED_CHIP == 90
inline constexpr bool kAsyncCopies = true, kSplitLevels = true;
LUCE_DEVICE uint32_t pick(uint32_t hi, uint32_t lo, uint32_t sel) {
    const uint64_t both = static_cast<uint64_t>(hi) << 32 | lo;
    uint32_t r = 0;
    for (int j = 0; j < 4; j++) {
        const uint32_t n = sel >> (4 * j) & 15, byte = static_cast<uint32_t>(both >> (8 * (n & 7)) & 255);
        r |= (n < 8 ? byte : byte >> 7 ? 255u : 0u) << (8 * j);
    }
    return r;
}
#else
inline constexpr bool kAsyncCopies = false, kSplitLevels = false;
#endif
LUCE_DEVICE void lut16(uint32_t q, const uint32_t (&t)[4], uint32_t& lo, uint32_t& hi) {
    const auto level = [&t](uint32_t n) { return t[n / 4] >> (8 * (n % 4)) & 255; };
    lo = hi = 0;
    for (int j = 0; j < 32; j += 8) lo |= level(q >> j & 15) << j, hi |= level(q >> (j + 4) & 15) << j;
}

#if LUCE_EMULATED_CHIP == 12 || LUCE_EMULATED_CHIP == 11
#if LUCE_EMULATED_CHIP == 12
struct Map : MapGfx12 {};
#else
struct Map : MapGfx11 {};
#endif
template <bool kSigned> LUCE_DEVICE void wmma(int (&d)[8], const uint32_t* w, const uint32_t* x) {
#if LUCE_EMULATED_CHIP == 12
    emulator::wmma_gfx12(d, w, x, kSigned);
#else
    const bool upper = emulator::current_lane() >= 16;
    uint32_t a[4], b[4];
    for (int i = 0; i < 2; i++) {
        const uint32_t far_x = shfl_xor(x[i], 16), far_w = shfl_xor(w[i], 16);
        a[i] = upper ? far_x : x[i], a[2 + i] = upper ? x[i] : far_x;
        b[i] = upper ? far_w : w[i], b[2 + i] = upper ? w[i] : far_w;
    }
    emulator::wmma_gfx11(d, b, a, kSigned);
#endif
}
template <int kRows, bool kSigned = true, int kStart = 0, bool kOnto = false>
LUCE_DEVICE void tile32(int (&d)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    for (int i = 0; i < 8; i++) d[i] = kOnto ? d[i] : kStart;
    wmma<kSigned>(d, w, x), wmma<kSigned>(d, w + 2, x + 2);
}
template <int kRows> LUCE_DEVICE void tile16(int (&d0)[8], int (&d1)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    for (int i = 0; i < 8; i++) d0[i] = d1[i] = 0;
    wmma<true>(d0, w, x), wmma<true>(d1, w + 2, x + 2);
}
#elif LUCE_EMULATED_CHIP == 90
struct Map : MapNvidia {};
template <int kRows, bool kSigned = true, int kStart = 0, bool kOnto = false>
LUCE_DEVICE void tile32(int (&d)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    for (int i = 0; i < 8; i++) d[i] = kOnto ? d[i] : kStart;
    for (int h = 0; h < 2; h++) {
        emulator::mma_16816(d, w + 2 * h, x[2 * h], kSigned);
        if (kRows > 8) emulator::mma_16816(d + 4, w + 2 * h, x[2 * h + 1], kSigned);
    }
}
template <int kRows> LUCE_DEVICE void tile16(int (&d0)[8], int (&d1)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    for (int i = 0; i < 8; i++) d0[i] = d1[i] = 0;
    for (int t = 0; t < (kRows > 8 ? 2 : 1); t++) emulator::mma_16816(d0 + 4 * t, w, x[t], true), emulator::mma_16816(d1 + 4 * t, w + 2, x[2 + t], true);
}
#else
struct Map : MapGfx12 {};
#endif

}  // namespace
}  // namespace lucebox::hip

#if LUCE_EMULATED_CHIP == 9
#include "hip/arch/dot_tiles.h"
#endif
