// The types of 32 values with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4.
#include "quants/blocks.h"
#include "quants/search.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace lucebox::quants {
namespace {

// Element e of a 4-bit block: the low nibbles of 16 bytes are elements 0 to 15, the high ones 16 to 31.
int quant4(const uint8_t* qs, int e) { return nibble(qs, e % 16, e / 16); }
int quant5(const uint8_t* qs, uint32_t high, int e) { return quant4(qs, e) | static_cast<int>((high >> e) & 1) << 4; }

void set_scale(Block& out, float d, float dmin = 0) {
    out.d = d;
    out.dmin = dmin;
    out.scale[0] = out.scale[1] = 1;
}

}  // namespace

void decode_q4_0(const uint8_t* b, Block& out) {
    set_scale(out, f16(b, 0));
    for (int e = 0; e < 32; e++) out.q[e] = static_cast<int8_t>(quant4(b + 2, e) - 8);
}

void decode_q4_1(const uint8_t* b, Block& out) {
    set_scale(out, f16(b, 0), f16(b, 2));
    for (int e = 0; e < 32; e++) out.q[e] = static_cast<int8_t>(quant4(b + 4, e));
}

void decode_q5_0(const uint8_t* b, Block& out) {
    set_scale(out, f16(b, 0));
    for (int e = 0; e < 32; e++) out.q[e] = static_cast<int8_t>(quant5(b + 6, u32(b, 2), e) - 16);
}

void decode_q5_1(const uint8_t* b, Block& out) {
    set_scale(out, f16(b, 0), f16(b, 2));
    for (int e = 0; e < 32; e++) out.q[e] = static_cast<int8_t>(quant5(b + 8, u32(b, 4), e));
}

void decode_q8_0(const uint8_t* b, Block& out) {
    set_scale(out, f16(b, 0));
    std::memcpy(out.q, b + 2, 32);
}

void decode_mxfp4(const uint8_t* b, Block& out) {
    static constexpr int8_t kHalves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    // 2^(e - 128): the levels are doubled, so that they are integers; the two smallest scales are subnormal.
    const uint32_t e = b[0];
    set_scale(out, std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23));
    for (int i = 0; i < 32; i++) out.q[i] = kHalves[quant4(b + 1, i)];
}

void encode_q8_0(const float* x, size_t columns, const float*, uint8_t* out) {
    for (const float* end = x + columns; x < end; x += 32, out += 34) {
        const float d = std::fabs(largest(x, 32)) / 127, inverse = d != 0 ? 1 / d : 0;
        put_f16(out, 0, d);
        for (int e = 0; e < 32; e++) {
            const float q = std::round(x[e] * inverse);
            out[2 + e] = static_cast<uint8_t>(std::fabs(q) <= 127 ? static_cast<int>(q) : 0);  // d below 2^-128 has no inverse
        }
    }
}

void encode_q4_0(const float* x, size_t columns, const float* importance, uint8_t* out) {
    float sum = 0;
    for (size_t i = 0; i < columns; i++) sum += x[i] * x[i];
    const float variance = sum / static_cast<float>(columns);
    for (size_t at = 0; at < columns; at += 32, out += 18) {
        uint8_t level[32];
        if (importance) {
            float w[32];
            for (int e = 0; e < 32; e++) w[e] = importance[at + e] * std::sqrt(variance + x[at + e] * x[at + e]);
            put_f16(out, 0, search_symmetric(x + at, w, 32, 8, level));
        } else {
            const float d = largest(x + at, 32) / -8, inverse = d != 0 ? 1 / d : 0;
            put_f16(out, 0, d);
            for (int e = 0; e < 32; e++) {
                const float q = x[at + e] * inverse + 8.5f;
                level[e] = static_cast<uint8_t>(std::fabs(q) < 17 ? std::min(15, static_cast<int>(q)) : 0);
            }
        }
        for (int i = 0; i < 16; i++) out[2 + i] = static_cast<uint8_t>(level[i] | level[i + 16] << 4);
    }
}

}  // namespace lucebox::quants
