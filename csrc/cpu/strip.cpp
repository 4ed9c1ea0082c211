#include "cpu/strip.h"
#include "cpu/grids.h"
#include "quants/quants.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace lucebox::cpu {

using gguf::Type;

namespace {

// A block as a strip holds it: values + 128. The loops below are written for the compiler's vectoriser; quants/ has the formulas to read.
struct Row {
    alignas(32) uint8_t v[256];
    uint8_t scale[16], min[16];
    float d, dmin;
};

uint16_t u16(const uint8_t* b) {
    uint16_t v;
    std::memcpy(&v, b, 2);
    return v;
}
uint32_t u32(const uint8_t* b) {
    uint32_t v;
    std::memcpy(&v, b, 4);
    return v;
}

void decode_q2_K(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b + 80)), out.dmin = quants::from_f16(u16(b + 82));
    for (int s = 0; s < 16; s++) out.scale[s] = b[s] & 15, out.min[s] = b[s] >> 4;
    for (int n = 0; n < 2; n++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++) out.v[128 * n + 32 * j + l] = static_cast<uint8_t>(128 + ((b[16 + 32 * n + l] >> 2 * j) & 3));
}

void decode_q3_K(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b + 108));
    for (int s = 0; s < 16; s++) {
        const int low = s < 8 ? b[96 + s] & 15 : b[88 + s] >> 4, high = (b[104 + s % 4] >> 2 * (s / 4)) & 3;
        out.scale[s] = static_cast<uint8_t>((low | high << 4) - 32);
    }
    for (int n = 0; n < 2; n++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++)
                out.v[128 * n + 32 * j + l] = static_cast<uint8_t>(124 + ((b[32 + 32 * n + l] >> 2 * j) & 3) + (((b[l] >> (4 * n + j)) & 1) << 2));
}

// Eight values of a grid with signs; a grid's bytes are positive and below 128.
void put_signed(uint64_t row, uint32_t signs, uint8_t* v) {
    const uint64_t m = kGrids.minus[signs], value = ((row ^ m) + (m & 0x0101010101010101u)) ^ 0x8080808080808080u;
    std::memcpy(v, &value, 8);
}
// Seven signs are stored; the eighth makes the number of minus signs even.
uint32_t eight_signs(uint32_t seven) { return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7; }
uint64_t pair(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

void decode_iq2_xxs(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b)) / 8;
    for (int g = 0; g < 8; g++) {
        const uint32_t w = u32(b + 6 + 8 * g);
        out.scale[2 * g] = out.scale[2 * g + 1] = static_cast<uint8_t>(2 * (w >> 28) + 1);
        for (int k = 0; k < 4; k++) put_signed(kGrids.iq2_xxs[b[2 + 8 * g + k]], eight_signs((w >> 7 * k) & 127), out.v + 32 * g + 8 * k);
    }
}

void decode_iq2_xs(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b)) / 8;
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<uint8_t>(2 * ((b[66 + t / 2] >> 4 * (t % 2)) & 15) + 1);
    for (int o = 0; o < 32; o++) {
        const uint32_t w = u16(b + 2 + 2 * o);
        put_signed(kGrids.iq2_xs[w & 511], eight_signs(w >> 9), out.v + 8 * o);
    }
}

void decode_iq2_s(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b)) / 8;
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<uint8_t>(2 * ((b[74 + t / 2] >> 4 * (t % 2)) & 15) + 1);
    for (int o = 0; o < 32; o++) put_signed(kGrids.iq2_s[b[2 + o] | ((b[66 + o / 4] >> 2 * (o % 4)) & 3) << 8], b[34 + o], out.v + 8 * o);
}

void decode_iq3_xxs(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b)) / 4;
    for (int g = 0; g < 8; g++) {
        const uint32_t w = u32(b + 66 + 4 * g);
        out.scale[2 * g] = out.scale[2 * g + 1] = static_cast<uint8_t>(2 * (w >> 28) + 1);
        for (int k = 0; k < 4; k++) {
            const uint8_t* index = b + 2 + 8 * g + 2 * k;
            put_signed(pair(kGrids.iq3_xxs[index[0]], kGrids.iq3_xxs[index[1]]), eight_signs((w >> 7 * k) & 127), out.v + 32 * g + 8 * k);
        }
    }
}

// 8 * grid + 1 or - 1: the bytes are 120, 128 or 136, so that nothing is carried.
void put_iq1(int index, bool minus, uint8_t* v) {
    const uint64_t ones = 0x0101010101010101u, value = minus ? kGrids.iq1[index] - ones : kGrids.iq1[index] + ones;
    std::memcpy(v, &value, 8);
}

void decode_iq1_s(const uint8_t* b, Row& out) {
    out.d = quants::from_f16(u16(b)) / 8;
    for (int g = 0; g < 8; g++) {
        const uint32_t w = u16(b + 34 + 2 * g);
        out.scale[2 * g] = out.scale[2 * g + 1] = static_cast<uint8_t>(2 * ((w >> 12) & 7) + 1);
        for (int k = 0; k < 4; k++) put_iq1(static_cast<int>(b[2 + 4 * g + k] | ((w >> 3 * k) & 7) << 8), w & 0x8000, out.v + 32 * g + 8 * k);
    }
}

void decode_iq1_m(const uint8_t* b, Row& out) {
    const int d = u16(b + 48) >> 12 | (u16(b + 50) >> 8 & 0xF0) | (u16(b + 52) >> 4 & 0xF00) | (u16(b + 54) & 0xF000);
    out.d = quants::from_f16(static_cast<uint16_t>(d)) / 8;
    for (int t = 0; t < 16; t++) out.scale[t] = static_cast<uint8_t>(2 * ((u16(b + 48 + 2 * (t / 4)) >> 3 * (t % 4)) & 7) + 1);
    for (int o = 0; o < 32; o++) {
        const int h = (b[32 + o / 2] >> 4 * (o % 2)) & 15;
        put_iq1(b[o] | (h & 7) << 8, h & 8, out.v + 8 * o);
    }
}

using Decoder = void (*)(const uint8_t* block, Row& out);
Decoder decoder(Type type) {
    switch (type) {
        case Type::Q2_K: return decode_q2_K;
        case Type::Q3_K: return decode_q3_K;
        case Type::IQ1_S: return decode_iq1_s;
        case Type::IQ1_M: return decode_iq1_m;
        case Type::IQ2_XXS: return decode_iq2_xxs;
        case Type::IQ2_XS: return decode_iq2_xs;
        case Type::IQ2_S: return decode_iq2_s;
        default: return decode_iq3_xxs;
    }
}

}  // namespace

void decode_strip(const ops::Weight& w, int t, int at, int groups, Strip& out) {
    const Decoder decode = decoder(w.type);
    const size_t block_bytes = gguf::type_info(w.type).bytes, row_bytes = gguf::row_bytes(w.type, static_cast<uint64_t>(w.columns));
    Row row;
    std::memset(row.min, 0, sizeof row.min), row.dmin = 0;
    for (int l = 0; l < kLanes; l++) {
        const size_t n = static_cast<size_t>(std::min(t * kLanes + l, w.rows - 1));
        const uint8_t* blocks = w.data + n * row_bytes + static_cast<size_t>(at / 8) * block_bytes;
        for (int block = 0; block < groups / 8; block++) {
            __builtin_prefetch(blocks + (static_cast<size_t>(block) + 8) * block_bytes);
            decode(blocks + static_cast<size_t>(block) * block_bytes, row);
            uint8_t* to = out.v[8 * block][0] + 4 * l;
            for (int e = 0; e < 64; e++) std::memcpy(to + 64 * e, row.v + 4 * e, 4);
            for (int s = 0; s < 16; s++) out.scale[16 * block + s][l] = row.scale[s], out.min[16 * block + s][l] = row.min[s];
            out.d[block][l] = row.d, out.dmin[block][l] = row.dmin;
        }
    }
}

}  // namespace lucebox::cpu
