// Decoding a tile's 32 columns to eight vectors of unsigned bytes, [16 outputs][4 columns] each (cpu/tiles.h).
#pragma once
#include "cpu/grids.h"
#include "cpu/lanes_avx512.h"
#include "cpu/tiles.h"

namespace lucebox::cpu::zmm {

using gguf::Type;

LUCE_FN __m512i signed16(const uint8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
LUCE_FN __m512i unsigned16(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

template <Type T> inline constexpr bool kFive = T == Type::Q5_0 || T == Type::Q5_1 || T == Type::Q5_K;
template <Type T> inline constexpr bool kLevels = T == Type::IQ4_XS || T == Type::IQ4_NL || T == Type::MXFP4;

// The table of a type with levels, made unsigned.
template <Type T> LUCE_FN __m512i level_table() {
    constexpr TileForm form = tile_form(T);
    const int8_t* levels = T == Type::MXFP4 ? kMxfp4Levels : kFourBitLevels;
    const __m128i offset = _mm_set1_epi8(static_cast<char>(form.offset));
    return _mm512_broadcast_i32x4(_mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)), offset));
}

// Two bits of h, at 4 and 5, by shifting left (negative: right).
template <int kShift> LUCE_FN __m512i shifted(__m512i h) {
    if constexpr (kShift > 0) return _mm512_slli_epi16(h, kShift);
    else if constexpr (kShift < 0) return _mm512_srli_epi16(h, -kShift);
    else return h;
}
LUCE_FN __m512i with_bits(__m512i low, __m512i high, __m512i mask) { return _mm512_ternarylogic_epi32(low, high, mask, 0xf8); }  // low | (high & mask)

// A table of 512 bytes at 64 indices of nine bits.
LUCE_FN __m512i look_up(const uint8_t* table, __m512i index, __mmask64 bit7, __mmask64 bit8) {
    const __m512i a = _mm512_permutex2var_epi8(load(table), index, load(table + 64)), b = _mm512_permutex2var_epi8(load(table + 128), index, load(table + 192));
    const __m512i c = _mm512_permutex2var_epi8(load(table + 256), index, load(table + 320)), d = _mm512_permutex2var_epi8(load(table + 384), index, load(table + 448));
    return _mm512_mask_blend_epi8(bit8, _mm512_mask_blend_epi8(bit7, a, b), _mm512_mask_blend_epi8(bit7, c, d));
}
LUCE_FN __mmask64 mask64(const uint8_t* p) {
    uint64_t m;
    memcpy(&m, p, sizeof m);
    return m;
}

// Vectors 4 h .. 4 h + 3 of an IQ3_S group: 16 + or - (1 + 2 code) = 2 code ^ 0x11 or ^ 0x0f. The codes lie at bit 0 and 3 of a byte of each
// table; taken from one bit before, they come doubled.
LUCE_FN void decode_iq3_s(const uint8_t* block, int s, int h, __m512i (&v)[8]) {
    const __m512i index = load(block + 128 * s + 64 * h);
    const __mmask64 bit7 = _mm512_movepi8_mask(index), bit8 = mask64(block + kIq3High + 16 * s + 8 * h);
    const __m512i low = look_up(kGrids.iq3_s_low, index, bit7, bit8), high = look_up(kGrids.iq3_s_high, index, bit7, bit8);
    const __m512i code = _mm512_set1_epi8(0x0e), plus = _mm512_set1_epi8(0x11), minus = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i places = _mm512_add_epi8(_mm512_set1_epi64(0x22'1f'22'1f'02'3f'02'3f), _mm512_set1_epi8(static_cast<char>(8 * i)));
        const __m512i doubled = _mm512_mask_multishift_epi64_epi8(_mm512_multishift_epi64_epi8(places, low), 0xcccccccccccccccc, places, high);
        const __m512i sign = _mm512_mask_blend_epi8(mask64(block + kIq3Signs + 64 * s + 8 * (4 * h + i)), plus, minus);
        v[4 * h + i] = _mm512_ternarylogic_epi32(doubled, code, sign, 0x6a);  // (doubled & code) ^ sign
    }
}

// Group s of a block's quants.
template <Type T> LUCE_FN void decode_group(const uint8_t* quants, int s, __m512i (&v)[8]) {
    if constexpr (T == Type::IQ3_S) {
        decode_iq3_s(quants, s, 0, v), decode_iq3_s(quants, s, 1, v);
        return;
    }
    constexpr TileForm form = tile_form(T);
    const uint8_t* group = quants + s * form.group_bytes;
    if constexpr (T == Type::Q8_0) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            v[i] = load(group + 64 * i);
            __asm__("" : "+v"(v[i]));  // gcc would load it again for every row
        }
        return;
    }
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i r = load(group + 64 * i);
        v[i] = _mm512_and_si512(r, low), v[4 + i] = _mm512_and_si512(_mm512_srli_epi16(r, 4), low);
        if constexpr (kLevels<T>) v[i] = _mm512_shuffle_epi8(level_table<T>(), v[i]), v[4 + i] = _mm512_shuffle_epi8(level_table<T>(), v[4 + i]);
    }
    if constexpr (kFive<T>) {
        const __m512i h = load(group + 256), bit = _mm512_set1_epi8(16);
        v[0] = with_bits(v[0], shifted<4>(h), bit), v[1] = with_bits(v[1], shifted<3>(h), bit);
        v[2] = with_bits(v[2], shifted<2>(h), bit), v[3] = with_bits(v[3], shifted<1>(h), bit);
        v[4] = with_bits(v[4], h, bit), v[5] = with_bits(v[5], shifted<-1>(h), bit);
        v[6] = with_bits(v[6], shifted<-2>(h), bit), v[7] = with_bits(v[7], shifted<-3>(h), bit);
    }
    if constexpr (T == Type::Q6_K) {
        const __m512i bits = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const __m512i h = load(group + 256 + 64 * j);
            v[4 * j] = with_bits(v[4 * j], shifted<4>(h), bits), v[4 * j + 1] = with_bits(v[4 * j + 1], shifted<2>(h), bits);
            v[4 * j + 2] = with_bits(v[4 * j + 2], h, bits), v[4 * j + 3] = with_bits(v[4 * j + 3], shifted<-2>(h), bits);
        }
    }
}

// d (and dmin: part 1) of the 16 outputs of a block.
template <Type T> LUCE_FN __m512 block_scale(const uint8_t* scales, int part) {
    if constexpr (T == Type::MXFP4) {  // 2^(e - 128), the two smallest subnormal
        const __m512i e = unsigned16(scales), small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
        return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), small));
    }
    return halves16(scales + 32 * part);
}

}  // namespace lucebox::cpu::zmm
