// The IQ types: 4-bit levels from a table, and groups of 4 or 8 values taken from a grid. A grid row is packed in 16 bits
// (quants/grids.inc); signs come apart from it. o names a group of 8, g a 32.
#include "quants/blocks.h"
#include "quants/search.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace lucebox::quants {
namespace {

#include "quants/grids.inc"

constexpr int8_t kIQ1[4] = {-1, 0, 1, 0};
constexpr int8_t kIQ2[4] = {8, 25, 43, 0};
constexpr int8_t kIQ3XXS[8] = {4, 12, 20, 28, 36, 44, 52, 62};

int8_t two_bit(const int8_t (&values)[4], uint16_t row, int i) { return values[(row >> 2 * i) & 3]; }
int8_t signed_value(int8_t value, uint32_t signs, int i) { return static_cast<int8_t>((signs >> i) & 1 ? -value : value); }

// Seven signs are stored; the eighth makes the number of minus signs even.
uint32_t eight_signs(uint32_t seven) { return seven | (std::popcount(seven) & 1u) << 7; }

void iq2_group(Block& out, int o, uint16_t row, uint32_t signs) {
    for (int i = 0; i < 8; i++) out.q[8 * o + i] = signed_value(two_bit(kIQ2, row, i), signs, i);
}

// IQ1: eight times (grid + delta), delta = +1/8 or -1/8.
void iq1_group(Block& out, int o, int row, bool minus) {
    for (int i = 0; i < 8; i++) out.q[8 * o + i] = static_cast<int8_t>(8 * two_bit(kIQ1, kGridIQ1[row], i) + (minus ? -1 : 1));
}

void encode_block_iq4_xs(const float* x, const float* importance, uint8_t* out) {
    float sum = 0, scale[8];
    for (int e = 0; e < 256; e++) sum += x[e] * x[e];
    for (int s = 0; s < 8; s++) {
        const float* xs = x + 32 * s;
        float w[32];
        for (int l = 0; l < 32; l++) w[l] = importance ? importance[32 * s + l] * std::sqrt(2 * sum / 256 + xs[l] * xs[l]) : xs[l] * xs[l];
        scale[s] = search_levels(xs, w, 32);
    }
    std::memset(out, 0, 136);
    const float d = -largest(scale, 8) / 32, inverse = d != 0 ? 1 / d : 0;
    put_f16(out, 0, d);
    uint32_t high = 0;
    for (int s = 0; s < 8; s++) {
        const int stored = std::clamp(round_even(inverse * scale[s]), -32, 31);
        out[4 + s / 2] |= static_cast<uint8_t>(((stored + 32) & 15) << 4 * (s % 2));
        high |= static_cast<uint32_t>((stored + 32) >> 4) << 2 * s;
        const float step = d * static_cast<float>(stored), per_step = step != 0 ? 1 / step : 0;
        for (int l = 0; l < 32; l++) out[8 + 16 * s + l % 16] |= static_cast<uint8_t>(nearest_level(per_step * x[32 * s + l]) << 4 * (l / 16));
    }
    put_u16(out, 2, static_cast<uint16_t>(high));
}

}  // namespace

void decode_iq1_s(const uint8_t* b, Block& out) {
    out.d = f16(b, 0) / 8;
    for (int o = 0; o < 32; o++) {
        const int w = u16(b, 34 + 2 * (o / 4));
        out.scale[o / 2] = static_cast<int8_t>(2 * ((w >> 12) & 7) + 1);
        iq1_group(out, o, b[2 + o] | ((w >> 3 * (o % 4)) & 7) << 8, w & 0x8000);
    }
}

void decode_iq1_m(const uint8_t* b, Block& out) {
    const int d = u16(b, 48) >> 12 | (u16(b, 50) >> 8 & 0xF0) | (u16(b, 52) >> 4 & 0xF00) | (u16(b, 54) & 0xF000);
    out.d = from_f16(static_cast<uint16_t>(d)) / 8;
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<int8_t>(2 * ((u16(b, 48 + 2 * (t / 4)) >> 3 * (t % 4)) & 7) + 1);
    for (int o = 0; o < 32; o++) {
        const int h = nibble(b, 32 + o / 2, o % 2);
        iq1_group(out, o, b[o] | (h & 7) << 8, h & 8);
    }
}

void decode_iq2_xxs(const uint8_t* b, Block& out) {
    out.d = f16(b, 0) / 8;
    for (int o = 0; o < 32; o++) {
        const int g = o / 4, k = o % 4;
        const uint32_t w = u32(b, 6 + 8 * g);
        out.scale[o / 2] = static_cast<int8_t>(2 * (w >> 28) + 1);
        iq2_group(out, o, kGridIQ2XXS[b[2 + 8 * g + k]], eight_signs((w >> 7 * k) & 127));
    }
}

void decode_iq2_xs(const uint8_t* b, Block& out) {
    out.d = f16(b, 0) / 8;
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<int8_t>(2 * nibble(b, 66 + t / 2, t % 2) + 1);
    for (int o = 0; o < 32; o++) iq2_group(out, o, kGridIQ2XS[u16(b, 2 + 2 * o) & 511], eight_signs(u16(b, 2 + 2 * o) >> 9));
}

void decode_iq2_s(const uint8_t* b, Block& out) {
    out.d = f16(b, 0) / 8;
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<int8_t>(2 * nibble(b, 74 + t / 2, t % 2) + 1);
    for (int o = 0; o < 32; o++) iq2_group(out, o, kGridIQ2S[b[2 + o] | ((b[66 + o / 4] >> 2 * (o % 4)) & 3) << 8], b[34 + o]);
}

void decode_iq3_xxs(const uint8_t* b, Block& out) {
    out.d = f16(b, 0) / 4;
    for (int o = 0; o < 32; o++) {
        const uint32_t w = u32(b, 66 + 4 * (o / 4)), signs = eight_signs((w >> 7 * (o % 4)) & 127);
        out.scale[o / 2] = static_cast<int8_t>(2 * (w >> 28) + 1);
        for (int i = 0; i < 8; i++) {
            const uint16_t row = kGridIQ3XXS[b[2 + 2 * o + i / 4]];
            out.q[8 * o + i] = signed_value(kIQ3XXS[(row >> 3 * (i % 4)) & 7], signs, i);
        }
    }
}

void decode_iq3_s(const uint8_t* b, Block& out) {
    out.d = f16(b, 0);
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<int8_t>(2 * nibble(b, 106 + t / 4, t / 2 % 2) + 1);
    for (int e = 0; e < 256; e++) {
        const int p = e / 4;
        const uint16_t row = kGridIQ3S[b[2 + p] | ((b[66 + p / 8] >> p % 8) & 1) << 8];
        out.q[e] = signed_value(static_cast<int8_t>(2 * ((row >> 3 * (e % 4)) & 7) + 1), b[74 + e / 8], e % 8);
    }
}

void decode_iq4_nl(const uint8_t* b, Block& out) {
    out.d = f16(b, 0);
    out.scale[0] = out.scale[1] = 1;
    for (int e = 0; e < 32; e++) out.q[e] = kLevels[nibble(b, 2 + e % 16, e / 16)];
}

void decode_iq4_xs(const uint8_t* b, Block& out) {
    out.d = f16(b, 0);
    for (int t = 0; t < 16; t++) {
        const int s = t / 2, low = nibble(b, 4 + s / 2, s % 2), high = (u16(b, 2) >> 2 * s) & 3;
        out.scale[t] = static_cast<int8_t>((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++) out.q[e] = kLevels[nibble(b, 8 + 16 * (e / 32) + e % 16, e % 32 / 16)];
}

void encode_iq4_xs(const float* x, size_t columns, const float* importance, uint8_t* out) {
    for (size_t at = 0; at < columns; at += 256, out += 136) encode_block_iq4_xs(x + at, importance ? importance + at : nullptr, out);
}

}  // namespace lucebox::quants
