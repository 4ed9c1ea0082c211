// The grids of the IQ types for the SIMD variants: as bytes, and as codes of 2 bits (IQ1, IQ2) or 3 (IQ3), half a grid row a table.
#pragma once
#include <cstdint>

namespace lucebox::cpu {

template <int kRows> struct Codes {
    uint8_t low[kRows], high[kRows];  // of the row's first and second half
};

struct Grids {
    uint64_t iq1[2048];  // 1 + 8 * code: 9 + 8 * value
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024];
    uint32_t iq3_xxs[256], iq3_s[512];
    Codes<2048> iq1_codes;
    Codes<256> iq2_xxs_codes;
    Codes<512> iq2_xs_codes;
    Codes<1024> iq2_s_codes;
    Codes<256> iq3_xxs_codes;
    Codes<512> iq3_s_codes;
};
extern const Grids kGrids;

inline constexpr uint8_t kIq1Values[4] = {1, 9, 17, 9}, kIq2Values[4] = {8, 25, 43, 0};
inline constexpr uint8_t kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62}, kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace lucebox::cpu
