// What the families share: reading fields of a block, and the decoders and encoders by name. Inside csrc/quants only.
#pragma once
#include "quants/quants.h"
#include <cstring>

namespace lucebox::quants {

// Fields at byte i of a block, little-endian, not aligned.
inline uint16_t u16(const uint8_t* b, int i) { return static_cast<uint16_t>(b[i] | b[i + 1] << 8); }
inline uint32_t u32(const uint8_t* b, int i) { return u16(b, i) | static_cast<uint32_t>(u16(b, i + 2)) << 16; }
inline float f16(const uint8_t* b, int i) { return from_f16(u16(b, i)); }
inline int nibble(const uint8_t* b, int i, int high) { return (b[i] >> 4 * high) & 15; }

// The levels of IQ4_NL and IQ4_XS.
inline constexpr int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Scale and minimum of the eight 32s of a Q4_K or Q5_K block, from its 12 bytes of 6-bit numbers.
struct ScaleMin {
    uint8_t scale, min;
};
inline ScaleMin scale_min(const uint8_t* c, int s) {
    if (s < 4) return {static_cast<uint8_t>(c[s] & 63), static_cast<uint8_t>(c[s + 4] & 63)};
    return {static_cast<uint8_t>((c[s + 4] & 15) | (c[s - 4] >> 6) << 4), static_cast<uint8_t>((c[s + 4] >> 4) | (c[s] >> 6) << 4)};
}

// Each fills q, scale and d of Block, and min and dmin if its type has a minimum.
using Decoder = void(const uint8_t* b, Block& out);
Decoder decode_q4_0, decode_q4_1, decode_q5_0, decode_q5_1, decode_q8_0, decode_mxfp4;
Decoder decode_q2_K, decode_q3_K, decode_q4_K, decode_q5_K, decode_q6_K;
Decoder decode_iq1_s, decode_iq1_m, decode_iq2_xxs, decode_iq2_xs, decode_iq2_s, decode_iq3_xxs, decode_iq3_s, decode_iq4_nl, decode_iq4_xs;

// Each writes one row of `columns` values as blocks; importance [columns] or null.
using Encoder = void(const float* x, size_t columns, const float* importance, uint8_t* out);
Encoder encode_q4_0, encode_q8_0, encode_q4_K, encode_q6_K, encode_iq4_xs;

inline void put_u16(uint8_t* b, int i, uint16_t x) { b[i] = static_cast<uint8_t>(x), b[i + 1] = static_cast<uint8_t>(x >> 8); }
// Writes x at byte i rounded to f16 and returns what a decoder will read.
inline float put_f16(uint8_t* b, int i, float x) {
    put_u16(b, i, to_f16(x));
    return f16(b, i);
}

}  // namespace lucebox::quants
