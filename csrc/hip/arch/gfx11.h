// RDNA3: WMMA wants all 16 k of a row in both half-waves. Fragments are loaded as on gfx12 and the halves exchanged here.
#pragma once
#include "hip/arch/gfx_wave32.h"

namespace lucebox::hip {
namespace {

struct Map : MapGfx11 {};
typedef int Int4 __attribute__((ext_vector_type(4)));
typedef int Int8 __attribute__((ext_vector_type(8)));

LUCE_DEVICE Int4 both_halves(uint32_t a, uint32_t b, bool upper) {
    const int own0 = static_cast<int>(a), own1 = static_cast<int>(b);
    const int far0 = static_cast<int>(shfl_xor(a, 16)), far1 = static_cast<int>(shfl_xor(b, 16));
    return upper ? Int4{far0, far1, own0, own1} : Int4{own0, own1, far0, far1};
}
template <bool kSigned> LUCE_DEVICE Int8 wmma(uint32_t x0, uint32_t x1, uint32_t w0, uint32_t w1, Int8 c) {
    const bool upper = lane_in_wave32() >= 16;
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, both_halves(x0, x1, upper), kSigned, both_halves(w0, w1, upper), c, false);
}
template <int kRows, bool kSigned = true, int kStart = 0, bool kOnto = false> LUCE_DEVICE void tile32(int (&d)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    Int8 c = Int8{} + kStart;
    if (kOnto)
        for (int i = 0; i < 8; i++) c[i] = d[i];
    c = wmma<kSigned>(x[0], x[1], w[0], w[1], c);
    c = wmma<kSigned>(x[2], x[3], w[2], w[3], c);
    for (int i = 0; i < 8; i++) d[i] = c[i];
}
template <int kRows> LUCE_DEVICE void tile16(int (&d0)[8], int (&d1)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    const Int8 a = wmma<true>(x[0], x[1], w[0], w[1], Int8{}), b = wmma<true>(x[2], x[3], w[2], w[3], Int8{});
    for (int i = 0; i < 8; i++) d0[i] = a[i], d1[i] = b[i];
}

}  // namespace
}  // namespace lucebox::hip
