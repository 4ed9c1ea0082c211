// gfx906: waves of 64 hold two logical waves, which may diverge in loops but not around a barrier; v_dot4_i32_i8, no matrix unit.
#pragma once
#include "hip/arch/gfx.h"

namespace lucebox::hip {
namespace {

struct Map : MapGfx12 {};

LUCE_DEVICE uint32_t shfl_xor(uint32_t v, int mask) {
    const int i = static_cast<int>(v);
    int r;
    switch (mask) {
        case 1: r = __builtin_amdgcn_update_dpp(0, i, 0xB1, 0xf, 0xf, true); break;
        case 2: r = __builtin_amdgcn_update_dpp(0, i, 0x4E, 0xf, 0xf, true); break;
        case 4: r = __builtin_amdgcn_ds_swizzle(i, 0x101F); break;
        case 8: r = __builtin_amdgcn_ds_swizzle(i, 0x201F); break;
        default: r = __builtin_amdgcn_ds_swizzle(i, 0x401F); break;
    }
    return static_cast<uint32_t>(r);
}
LUCE_DEVICE uint32_t shfl(uint32_t v, int source) {
    const int upper = static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u))) & 32;
    return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute((upper + source) << 2, static_cast<int>(v)));
}
LUCE_DEVICE int dot4(uint32_t a, uint32_t b, int c) { return __builtin_amdgcn_sdot4(static_cast<int>(a), static_cast<int>(b), c, false); }
LUCE_DEVICE int dot4_unsigned(uint32_t a, uint32_t b, int c) { return dot4(a & 0x7f7f7f7fu, b, c) + 128 * dot4((a >> 7) & 0x01010101u, b, 0); }
LUCE_DEVICE int uniform(int x) { return x; }

}  // namespace
}  // namespace lucebox::hip

#include "hip/arch/dot_tiles.h"
