// Decoding a tile's 32 columns to eight vectors of unsigned bytes, [16 outputs][4 columns] each (cpu/tiles.h).
#pragma once
#include "cpu/lanes_avx512.h"
#include "cpu/tiles.h"

namespace lucebox::cpu::zmm {

using gguf::Type;

LUCE_FN __m512i signed16(const uint8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
LUCE_FN __m512i unsigned16(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

template <Type T> inline constexpr bool kFive = T == Type::Q5_0 || T == Type::Q5_1 || T == Type::Q5_K;
template <Type T> inline constexpr bool kTwoBits = T == Type::Q2_K || T == Type::Q3_K;
template <Type T> inline constexpr bool kLevels = T == Type::IQ4_XS || T == Type::IQ4_NL || T == Type::MXFP4;

// The table of a type with levels, made unsigned.
template <Type T> LUCE_FN __m512i level_table() {
    constexpr TileForm form = tile_form(T);
    const int8_t* levels = T == Type::MXFP4 ? kMxfp4Levels : kFourBitLevels;
    const __m128i offset = _mm_set1_epi8(static_cast<char>(form.offset));
    return _mm512_broadcast_i32x4(_mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)), offset));
}

// h shifted left (negative: right); bits that cross a byte's border are masked away.
template <int kShift> LUCE_FN __m512i shifted(__m512i h) {
    if constexpr (kShift > 0) return _mm512_slli_epi16(h, kShift);
    else if constexpr (kShift < 0) return _mm512_srli_epi16(h, -kShift);
    else return h;
}
LUCE_FN __m512i with_bits(__m512i low, __m512i high, __m512i mask) { return _mm512_ternarylogic_epi32(low, high, mask, 0xf8); }  // low | (high & mask)

template <Type T> LUCE_FN void decode_grid_group(const uint8_t* quants, int s, __m512i (&v)[8]);  // grids_avx512.h

// Group s of a block's quants.
template <Type T> LUCE_FN void decode_group(const uint8_t* quants, int s, __m512i (&v)[8]) {
    constexpr TileForm form = tile_form(T);
    if constexpr (form.index_bits != 0) {
        decode_grid_group<T>(quants, s, v);
        return;
    }
    const uint8_t* group = quants + s * form.group_bytes;
    if constexpr (T == Type::Q8_0) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            v[i] = load(group + 64 * i);
            __asm__("" : "+v"(v[i]));  // gcc would load it again for every row
        }
        return;
    }
    if constexpr (kTwoBits<T>) {
        const __m512i two = _mm512_set1_epi8(3), third = _mm512_set1_epi8(4);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const __m512i h = load(group + 64 * j);
            v[4 * j] = _mm512_and_si512(h, two), v[4 * j + 1] = _mm512_and_si512(shifted<-2>(h), two);
            v[4 * j + 2] = _mm512_and_si512(shifted<-4>(h), two), v[4 * j + 3] = _mm512_and_si512(shifted<-6>(h), two);
        }
        if constexpr (T == Type::Q3_K) {
            const __m512i h = load(group + 128);
            v[0] = with_bits(v[0], shifted<2>(h), third), v[1] = with_bits(v[1], shifted<1>(h), third);
            v[2] = with_bits(v[2], h, third), v[3] = with_bits(v[3], shifted<-1>(h), third);
            v[4] = with_bits(v[4], shifted<-2>(h), third), v[5] = with_bits(v[5], shifted<-3>(h), third);
            v[6] = with_bits(v[6], shifted<-4>(h), third), v[7] = with_bits(v[7], shifted<-5>(h), third);
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
    constexpr float factor = d_factor(T);
    const __m512 d = halves16(scales + 32 * part);
    return factor == 1.0f ? d : _mm512_mul_ps(d, _mm512_set1_ps(factor));
}

// The integer scales of group s: of 32 columns (first), or of 16 and 16.
template <Type T> LUCE_FN void group_scales(const uint8_t* quants, int s, __m512i& first, __m512i& second) {
    constexpr TileForm form = tile_form(T);
    const uint8_t* at = quants + form.scales_at();
    if constexpr (T == Type::Q2_K) {
        const __m512i low = _mm512_set1_epi32(15);
        first = _mm512_and_si512(unsigned16(at + 32 * s), low), second = _mm512_and_si512(unsigned16(at + 32 * s + 16), low);
    } else if constexpr (form.index_bits != 0 && form.halves) {  // 1 + 2 code
        const __m512i both = unsigned16(at + 16 * s), one = _mm512_set1_epi32(1), code = _mm512_set1_epi32(30);
        first = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi32(both, 1), code), one);
        second = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(both, 3), code), one);
    } else if constexpr (form.halves) {
        first = signed16(at + 32 * s), second = signed16(at + 32 * s + 16);
    } else if constexpr (form.block == 256) {
        first = signed16(at + 16 * s);
    }
}

}  // namespace lucebox::cpu::zmm
