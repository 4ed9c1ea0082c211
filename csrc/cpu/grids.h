// The grids of the IQ types as bytes, for the SIMD variants.
#pragma once
#include <cstdint>

namespace lucebox::cpu {

struct Grids {
    uint64_t iq1[2048];                        // 128 + 8 * value
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024];
    uint32_t iq3_xxs[256], iq3_s[512];         // iq3_s: 1, 3 .. 15
    uint64_t minus[256];                       // 255 in the bytes whose bit of the index is set
    uint8_t iq3_s_low[512], iq3_s_high[512];   // the codes (values 1 + 2 code) of columns 0, 1 and 2, 3, three bits each
};
extern const Grids kGrids;

}  // namespace lucebox::cpu
