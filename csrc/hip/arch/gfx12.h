// RDNA4: v_wmma_i32_16x16x16_iu8. Activations are the first operand (rows), weights the second (columns).
#pragma once
#include "hip/arch/gfx_wave32.h"

namespace lucebox::hip {
namespace {

struct Map : MapGfx12 {};
typedef int Int2 __attribute__((ext_vector_type(2)));
typedef int Int8 __attribute__((ext_vector_type(8)));

template <bool kSigned> LUCE_DEVICE Int8 wmma(uint32_t x0, uint32_t x1, uint32_t w0, uint32_t w1, Int8 c) {
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, Int2{static_cast<int>(x0), static_cast<int>(x1)}, kSigned,
                                                            Int2{static_cast<int>(w0), static_cast<int>(w1)}, c, false);
}
// d = kStart, or where kOnto d, + the 16 x 16 sums over 32 k. kRows 8: rows 8..15 are not wanted (the chip computes them all the same).
template <int kRows, bool kSigned = true, int kStart = 0, bool kOnto = false> LUCE_DEVICE void tile32(int (&d)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    Int8 c = Int8{} + kStart;
    if (kOnto)
        for (int i = 0; i < 8; i++) c[i] = d[i];
    c = wmma<kSigned>(x[0], x[1], w[0], w[1], c);
    c = wmma<kSigned>(x[2], x[3], w[2], w[3], c);
    for (int i = 0; i < 8; i++) d[i] = c[i];
}
// The two halves of 16 k apart.
template <int kRows> LUCE_DEVICE void tile16(int (&d0)[8], int (&d1)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    const Int8 a = wmma<true>(x[0], x[1], w[0], w[1], Int8{}), b = wmma<true>(x[2], x[3], w[2], w[3], Int8{});
    for (int i = 0; i < 8; i++) d0[i] = a[i], d1[i] = b[i];
}

}  // namespace
}  // namespace lucebox::hip
