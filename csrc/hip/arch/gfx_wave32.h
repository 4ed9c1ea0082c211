// Shuffles and dot products of gfx11 and gfx12.
#pragma once
#include "hip/arch/gfx.h"

namespace lucebox::hip {
namespace {

// No traffic through shared memory: DPP quad_perm, DPP row_xmask, v_permlanex16.
LUCE_DEVICE uint32_t shfl_xor(uint32_t v, int mask) {
    const int i = static_cast<int>(v);
    int r;
    switch (mask) {
        case 1: r = __builtin_amdgcn_update_dpp(0, i, 0xB1, 0xf, 0xf, true); break;
        case 2: r = __builtin_amdgcn_update_dpp(0, i, 0x4E, 0xf, 0xf, true); break;
        case 4: r = __builtin_amdgcn_update_dpp(0, i, 0x164, 0xf, 0xf, true); break;
        case 8: r = __builtin_amdgcn_update_dpp(0, i, 0x168, 0xf, 0xf, true); break;
        default: r = static_cast<int>(__builtin_amdgcn_permlanex16(v, v, 0x76543210u, 0xfedcba98u, false, false)); break;
    }
    return static_cast<uint32_t>(r);
}
LUCE_DEVICE int dot4(uint32_t a, uint32_t b, int c) { return __builtin_amdgcn_sudot4(true, static_cast<int>(a), true, static_cast<int>(b), c, false); }
// a unsigned, b signed
LUCE_DEVICE int dot4_unsigned(uint32_t a, uint32_t b, int c) {
    return __builtin_amdgcn_sudot4(false, static_cast<int>(a), true, static_cast<int>(b), c, false);
}
// The same value in all lanes, kept in scalar registers.
LUCE_DEVICE int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }

}  // namespace
}  // namespace lucebox::hip
