#include "cpu/grids.h"

namespace lucebox::cpu {

namespace {

#include "quants/grids.inc"

template <class Row, int kBits> constexpr Row spread(uint16_t codes, const uint8_t* values) {
    Row row = 0;
    for (unsigned i = 0; i < sizeof(Row); i++) row |= static_cast<Row>(values[(codes >> (kBits * i)) & ((1 << kBits) - 1)]) << 8 * i;
    return row;
}

// kHalf: bits of half a row.
template <int kHalf, class Row, int kRows> constexpr void fill(const uint16_t (&grid)[kRows], const uint8_t* values, Row (&rows)[kRows], Codes<kRows>& codes) {
    for (int i = 0; i < kRows; i++) {
        rows[i] = spread<Row, 2 * kHalf / static_cast<int>(sizeof(Row))>(grid[i], values);
        codes.low[i] = grid[i] & ((1 << kHalf) - 1), codes.high[i] = static_cast<uint8_t>(grid[i] >> kHalf);
    }
}

constexpr Grids make() {
    Grids g{};
    fill<8>(kGridIQ1, kIq1Values, g.iq1, g.iq1_codes);
    fill<8>(kGridIQ2XXS, kIq2Values, g.iq2_xxs, g.iq2_xxs_codes);
    fill<8>(kGridIQ2XS, kIq2Values, g.iq2_xs, g.iq2_xs_codes);
    fill<8>(kGridIQ2S, kIq2Values, g.iq2_s, g.iq2_s_codes);
    fill<6>(kGridIQ3XXS, kIq3XxsValues, g.iq3_xxs, g.iq3_xxs_codes);
    fill<6>(kGridIQ3S, kIq3SValues, g.iq3_s, g.iq3_s_codes);
    return g;
}

}  // namespace

constinit const Grids kGrids = make();

}  // namespace lucebox::cpu
