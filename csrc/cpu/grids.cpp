#include "cpu/grids.h"

namespace lucebox::cpu {

namespace {

#include "quants/grids.inc"

constexpr uint8_t kIQ1[4] = {120, 128, 136, 128}, kIQ2[4] = {8, 25, 43, 0}, kIQ3XXS[8] = {4, 12, 20, 28, 36, 44, 52, 62};

template <class Row, int kBits> constexpr Row spread(uint16_t codes, const uint8_t* values) {
    Row row = 0;
    for (unsigned i = 0; i < sizeof(Row); i++) row |= static_cast<Row>(values[(codes >> (kBits * i)) & ((1 << kBits) - 1)]) << 8 * i;
    return row;
}

constexpr Grids make() {
    Grids g{};
    for (int i = 0; i < 2048; i++) g.iq1[i] = spread<uint64_t, 2>(kGridIQ1[i], kIQ1);
    for (int i = 0; i < 256; i++) g.iq2_xxs[i] = spread<uint64_t, 2>(kGridIQ2XXS[i], kIQ2);
    for (int i = 0; i < 512; i++) g.iq2_xs[i] = spread<uint64_t, 2>(kGridIQ2XS[i], kIQ2);
    for (int i = 0; i < 1024; i++) g.iq2_s[i] = spread<uint64_t, 2>(kGridIQ2S[i], kIQ2);
    for (int i = 0; i < 256; i++) g.iq3_xxs[i] = spread<uint32_t, 3>(kGridIQ3XXS[i], kIQ3XXS);
    constexpr uint8_t odd[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    for (int i = 0; i < 512; i++) {
        g.iq3_s[i] = spread<uint32_t, 3>(kGridIQ3S[i], odd);
        g.iq3_s_low[i] = kGridIQ3S[i] & 63, g.iq3_s_high[i] = (kGridIQ3S[i] >> 6) & 63;
    }
    for (int i = 0; i < 256; i++)
        for (int j = 0; j < 8; j++) g.minus[i] |= ((i >> j) & 1 ? 255ull : 0ull) << 8 * j;
    return g;
}

}  // namespace

constinit const Grids kGrids = make();

}  // namespace lucebox::cpu
