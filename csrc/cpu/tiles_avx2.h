// Decoding eight outputs of a tile (cpu/tiles.h) to vectors of bytes, [8 outputs][4 columns] each, and their products in AVX2.
#pragma once
#include "cpu/grids.h"
#include "cpu/lanes_avx2.h"
#include "cpu/tiles.h"

namespace lucebox::cpu::ymm {

using gguf::Type;

template <Type T> inline constexpr bool kFive = T == Type::Q5_0 || T == Type::Q5_1 || T == Type::Q5_K;
template <Type T> inline constexpr bool kLevels = T == Type::IQ4_XS || T == Type::IQ4_NL || T == Type::MXFP4;
// vpmaddubsw saturates at 16 bits. Wide: bytes of any size, as |w| times the activation with w's sign, widened at once. Otherwise: unsigned
// codes below 64 minus their offset, whose sums of 16 (Q4_*, Q5_0, MXFP4) or 8 products a lane (kTwoSums) fit in 16 bits.
template <Type T> inline constexpr bool kWide = T == Type::IQ4_XS || T == Type::IQ4_NL || T == Type::Q8_0;
template <Type T> inline constexpr bool kTwoSums = T == Type::Q6_K || T == Type::Q5_1 || T == Type::Q5_K;

template <Type T> LUCE_FN __m256i level_table() {
    constexpr TileForm form = tile_form(T);
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(T == Type::MXFP4 ? kMxfp4Levels : kFourBitLevels));
    return _mm256_broadcastsi128_si256(_mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(kWide<T> ? 0 : form.offset))));
}

template <int kShift> LUCE_FN __m256i bits(__m256i h, int mask) {
    const __m256i moved = kShift >= 0 ? _mm256_slli_epi16(h, kShift & 15) : _mm256_srli_epi16(h, -kShift & 15);
    return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)));
}

// Vector i of an IQ3_S group: 16 + or - a row of the grid (odd numbers below 16: row ^ 0x10 or ^ 0x0e).
LUCE_FN __m256i decode_iq3_s(const uint8_t* quants, int s, int half, int i) {
    const uint8_t* high = quants + kIq3High + 16 * s + 8 * (i / 4) + 4 * half;
    const __m256i low = _mm256_and_si256(_mm256_srli_epi32(load(quants + 128 * s + 64 * (i / 4) + 32 * half), 8 * (i % 4)), _mm256_set1_epi32(255));
    const __m256i lane = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i ninth = _mm256_and_si256(_mm256_srlv_epi32(_mm256_srli_epi32(spread32(high), i % 4), lane), _mm256_set1_epi32(1));
    const __m256i row = _mm256_i32gather_epi32(reinterpret_cast<const int*>(kGrids.iq3_s), _mm256_or_si256(low, _mm256_slli_epi32(ninth, 8)), 4);
    const __m256i nibble = _mm256_srlv_epi32(spread32(quants + kIq3Signs + 64 * s + 8 * i + 4 * half), lane);
    const __m256i spread = _mm256_shuffle_epi8(nibble, _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8,
                                                                        12, 12, 12, 12));
    const __m256i bit = _mm256_set1_epi32(0x08040201), minus = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    return _mm256_xor_si256(row, _mm256_blendv_epi8(_mm256_set1_epi8(0x10), _mm256_set1_epi8(0x0e), minus));
}

// Columns 4 i .. 4 i + 3 and 16 + 4 i .. of a block's group s for outputs 8 half .., signed where kWide.
template <Type T, int I> LUCE_FN void decode_pair(const uint8_t* quants, int s, int half, __m256i& lo, __m256i& hi) {
    if constexpr (T == Type::IQ3_S) {
        lo = decode_iq3_s(quants, s, half, I), hi = decode_iq3_s(quants, s, half, 4 + I);
        return;
    }
    constexpr TileForm form = tile_form(T);
    const uint8_t* group = quants + s * form.group_bytes + 32 * half;
    if constexpr (T == Type::Q8_0) {
        const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
        lo = _mm256_xor_si256(load(group + 64 * I), sign), hi = _mm256_xor_si256(load(group + 64 * (4 + I)), sign);
        return;
    }
    const __m256i r = load(group + 64 * I), low = _mm256_set1_epi8(15);
    lo = _mm256_and_si256(r, low), hi = _mm256_and_si256(_mm256_srli_epi16(r, 4), low);
    if constexpr (kLevels<T>) lo = _mm256_shuffle_epi8(level_table<T>(), lo), hi = _mm256_shuffle_epi8(level_table<T>(), hi);
    if constexpr (kFive<T>) {
        const __m256i h = load(group + 256);
        lo = _mm256_or_si256(lo, bits<4 - I>(h, 16)), hi = _mm256_or_si256(hi, bits<-I>(h, 16));
    }
    if constexpr (T == Type::Q6_K) {
        lo = _mm256_or_si256(lo, bits<4 - 2 * I>(load(group + 256), 0x30));
        hi = _mm256_or_si256(hi, bits<4 - 2 * I>(load(group + 320), 0x30));
    }
}

// Signed bytes of 8 outputs as 16-bit pairs, for vpmaddwd.
LUCE_FN __m256i scale_pairs(const uint8_t* p) {
    const __m128i s = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(s, s));
}
LUCE_FN __m256 minimums(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))); }

// d (and dmin: part 1) of 8 outputs of a block.
template <Type T> LUCE_FN __m256 block_scale(const uint8_t* scales, int half, int part) {
    if constexpr (T == Type::MXFP4) {  // 2^(e - 128), the two smallest subnormal
        const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + 8 * half)));
        const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e), normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
    }
    return halves8(scales + 32 * part + 16 * half);
}

}  // namespace lucebox::cpu::ymm
