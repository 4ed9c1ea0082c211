// Picks the chip. Every file of arch/ offers the same names; docs/kernels.md lists them.
#pragma once
#if defined(LUCE_EMULATED_CHIP)
#include "hip/arch/emulated.h"
#elif defined(__CUDACC__)
#include "hip/arch/nvidia.h"
#elif defined(__gfx1200__) || defined(__gfx1201__) || defined(__gfx12_generic__)
#include "hip/arch/gfx12.h"
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__)
#include "hip/arch/gfx11.h"
#elif defined(__gfx906__)
#include "hip/arch/gfx9.h"
#else
#error "no arch file for this chip: see docs/kernels.md"
#endif

namespace lucebox::hip {
namespace {

LUCE_DEVICE float shfl_xor(float v, int mask) { return ops::from_bits(shfl_xor(ops::to_bits(v), mask)); }

// The exchange tree 16, 8, 4, 2, 1; every lane gets the sum.
LUCE_DEVICE float wave_sum(float v) {
    v = v + shfl_xor(v, 16);
    v = v + shfl_xor(v, 8);
    v = v + shfl_xor(v, 4);
    v = v + shfl_xor(v, 2);
    return v + shfl_xor(v, 1);
}
// By steps, not by a loop: a shuffle's distance must be a constant, and clang leaves such loops as they are.
template <class T, class Join> LUCE_DEVICE T wave_join(T v, const Join& join) {
    v = join(v, 16);
    v = join(v, 8);
    v = join(v, 4);
    v = join(v, 2);
    return join(v, 1);
}
// A tile product's sums may start at the bits of 1.5 * 2^23: read as a float they are that plus the sum, and an exact fma gives scale * sum with neither
// an integer product nor a conversion, where |scale * sum| < 2^24.
inline constexpr int kSumBits = 0x4b400000;
inline constexpr float kSumStart = 12582912.0f;
LUCE_DEVICE uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

}  // namespace
}  // namespace lucebox::hip
