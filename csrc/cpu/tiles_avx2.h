// Decoding eight outputs of a tile (cpu/tiles.h) to vectors of bytes, [8 outputs][4 columns] each, and their products in AVX2.
#pragma once
#include "cpu/grids.h"
#include "cpu/lanes_avx2.h"
#include "cpu/tiles.h"

namespace lucebox::cpu::ymm {

using gguf::Type;

template <Type T> inline constexpr bool kFive = T == Type::Q5_0 || T == Type::Q5_1 || T == Type::Q5_K;
template <Type T> inline constexpr bool kTwoBits = T == Type::Q2_K || T == Type::Q3_K;
template <Type T> inline constexpr bool kLevels = T == Type::IQ4_XS || T == Type::IQ4_NL || T == Type::MXFP4;
template <Type T> inline constexpr bool kIq2 = T == Type::IQ2_XXS || T == Type::IQ2_XS || T == Type::IQ2_S;
// vpmaddubsw saturates at 16 bits. Wide: bytes of any size, as |w| times the activation with w's sign, widened at once. Otherwise: unsigned
// codes below 64 minus their offset, whose sums of 16 products a lane, or 8 (kTwoSums), fit in 16 bits.
template <Type T> inline constexpr bool kWide = T == Type::IQ4_XS || T == Type::IQ4_NL || T == Type::Q8_0 || kIq2<T> || T == Type::IQ3_XXS;
template <Type T> inline constexpr bool kTwoSums = !kWide<T> && (tile_form(T).halves || T == Type::Q5_1 || T == Type::Q5_K);

template <Type T> LUCE_FN __m256i level_table() {
    constexpr TileForm form = tile_form(T);
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(T == Type::MXFP4 ? kMxfp4Levels : kFourBitLevels));
    return _mm256_broadcastsi128_si256(_mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(kWide<T> ? 0 : form.offset))));
}

template <int kShift> LUCE_FN __m256i bits(__m256i h, int mask) {
    const __m256i moved = kShift >= 0 ? _mm256_slli_epi16(h, kShift & 15) : _mm256_srli_epi16(h, -kShift & 15);
    return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)));
}

// Bit 4 l + i of 32 bits in lane l.
LUCE_FN __m256i lane_bits(const uint8_t* bits, int i) {
    const __m256i lane = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_srli_epi32(spread32(bits), i), lane), _mm256_set1_epi32(1));
}
// 255 in byte j of lane l where bit 4 l + j of 32 bits is set.
LUCE_FN __m256i byte_mask(const uint8_t* bits) {
    const __m256i lane = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), bit = _mm256_set1_epi32(0x08040201);
    const __m256i nibble = _mm256_srlv_epi32(spread32(bits), lane);
    const __m256i first = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(nibble, first), bit), bit);
}

template <Type T> LUCE_FN const int* grid_rows() {
    if constexpr (T == Type::IQ2_XXS) return reinterpret_cast<const int*>(kGrids.iq2_xxs);
    else if constexpr (T == Type::IQ2_XS) return reinterpret_cast<const int*>(kGrids.iq2_xs);
    else if constexpr (T == Type::IQ2_S) return reinterpret_cast<const int*>(kGrids.iq2_s);
    else if constexpr (T == Type::IQ3_XXS) return reinterpret_cast<const int*>(kGrids.iq3_xxs);
    else if constexpr (T == Type::IQ3_S) return reinterpret_cast<const int*>(kGrids.iq3_s);
    else return reinterpret_cast<const int*>(kGrids.iq1);
}

// Vector i of a group of a type with a grid.
template <Type T> LUCE_FN __m256i decode_grid(const uint8_t* quants, int s, int half, int i) {
    constexpr TileForm form = tile_form(T);
    constexpr bool kThree = form.index_vectors() == 2;                // an index for four columns, not eight
    const int h = kThree ? i / 4 : 0, k = kThree ? i % 4 : i / 2;     // vector of indices, byte in it
    const __m256i low = _mm256_srli_epi32(load(quants + form.group_bytes * s + 64 * h + 32 * half), 8 * k);
    __m256i index = _mm256_and_si256(low, _mm256_set1_epi32(255));
    for (int bit = 8; bit < form.index_bits; bit++)
        index = _mm256_or_si256(index, _mm256_slli_epi32(lane_bits(quants + form.bits_at(s, h) + 8 * (bit - 8) + 4 * half, k), bit));
    if constexpr (!kThree) index = _mm256_add_epi32(_mm256_add_epi32(index, index), _mm256_set1_epi32(i % 2));
    const __m256i row = _mm256_i32gather_epi32(grid_rows<T>(), index, 4);
    if constexpr (form.index_bits == 11) {  // 9 + 8 value + or - 1
        const __m256i minus = _mm256_cmpgt_epi32(lane_bits(quants + form.signs_at(s, 8) + 4 * half, k), _mm256_setzero_si256());
        return _mm256_add_epi8(row, _mm256_or_si256(minus, _mm256_set1_epi8(1)));
    }
    const __m256i minus = byte_mask(quants + form.signs_at(s, 64) + 8 * i + 4 * half);
    // 16 + or - an odd number below 16: row ^ 0x10 or ^ 0x0e.
    if constexpr (T == Type::IQ3_S) return _mm256_xor_si256(row, _mm256_blendv_epi8(_mm256_set1_epi8(0x10), _mm256_set1_epi8(0x0e), minus));
    return _mm256_sub_epi8(_mm256_xor_si256(row, minus), minus);
}

// Columns 4 i .. 4 i + 3 and 16 + 4 i .. of a block's group s for outputs 8 half .., signed where kWide.
template <Type T, int I> LUCE_FN void decode_pair(const uint8_t* quants, int s, int half, __m256i& lo, __m256i& hi) {
    if constexpr (tile_form(T).index_bits != 0) {
        lo = decode_grid<T>(quants, s, half, I), hi = decode_grid<T>(quants, s, half, 4 + I);
        return;
    }
    constexpr TileForm form = tile_form(T);
    const uint8_t* group = quants + s * form.group_bytes + 32 * half;
    if constexpr (T == Type::Q8_0) {
        const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
        lo = _mm256_xor_si256(load(group + 64 * I), sign), hi = _mm256_xor_si256(load(group + 64 * (4 + I)), sign);
        return;
    }
    if constexpr (kTwoBits<T>) {
        lo = bits<-2 * I>(load(group), 3), hi = bits<-2 * I>(load(group + 64), 3);
        if constexpr (T == Type::Q3_K) {
            const __m256i h = load(group + 128);
            lo = _mm256_or_si256(lo, bits<2 - I>(h, 4)), hi = _mm256_or_si256(hi, bits<-2 - I>(h, 4));
        }
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

// The integer scales of group s for 8 outputs as 16-bit pairs, for vpmaddwd: of 32 columns (both), or of 16 and 16.
LUCE_FN __m256i scale_pairs(__m128i bytes) { return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes)); }
template <Type T> LUCE_FN void group_scales(const uint8_t* quants, int s, int half, __m256i& first, __m256i& second) {
    constexpr TileForm form = tile_form(T);
    const auto bytes = [&](int i) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(quants + form.scales_at() + 16 * i + 8 * half)); };
    if constexpr (form.block == 32) {
        first = second = _mm256_set1_epi16(1);
    } else if constexpr (T == Type::Q2_K) {
        const __m128i low = _mm_set1_epi8(15);
        first = scale_pairs(_mm_and_si128(bytes(2 * s), low)), second = scale_pairs(_mm_and_si128(bytes(2 * s + 1), low));
    } else if constexpr (form.index_bits != 0 && form.halves) {  // 1 + 2 code
        const __m128i both = bytes(s), one = _mm_set1_epi8(1), code = _mm_set1_epi8(30);
        first = scale_pairs(_mm_or_si128(_mm_and_si128(_mm_slli_epi16(both, 1), code), one));
        second = scale_pairs(_mm_or_si128(_mm_and_si128(_mm_srli_epi16(both, 3), code), one));
    } else if constexpr (form.halves) {
        first = scale_pairs(bytes(2 * s)), second = scale_pairs(bytes(2 * s + 1));
    } else {
        first = second = scale_pairs(bytes(s));
    }
}

// Minimum i of 8 outputs.
template <Type T> LUCE_FN __m256 minimum(const uint8_t* quants, int i, int half) {
    constexpr TileForm form = tile_form(T);
    const uint8_t* at = quants + (form.halves ? form.scales_at() : form.minimums_at()) + 16 * i + 8 * half;
    const __m256i m = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
    return _mm256_cvtepi32_ps(form.halves ? _mm256_srli_epi32(m, 4) : m);  // Q2_K: the high nibbles of the scales' bytes
}

// d (and dmin: part 1) of 8 outputs of a block.
template <Type T> LUCE_FN __m256 block_scale(const uint8_t* scales, int half, int part) {
    if constexpr (T == Type::MXFP4) {  // 2^(e - 128), the two smallest subnormal
        const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + 8 * half)));
        const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e), normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
    }
    constexpr float factor = d_factor(T);
    const __m256 d = halves8(scales + 32 * part + 16 * half);
    return factor == 1.0f ? d : _mm256_mul_ps(d, _mm256_set1_ps(factor));
}

}  // namespace lucebox::cpu::ymm
