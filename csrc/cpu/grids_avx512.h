// Decoding groups of the types with a grid: tables of 256 to 2,048 bytes in registers, 64 indices at a time.
#pragma once
#include "cpu/grids.h"
#include "cpu/tiles_avx512.h"

namespace lucebox::cpu::zmm {

LUCE_FN __mmask64 mask64(const uint8_t* p) {
    uint64_t m;
    memcpy(&m, p, sizeof m);
    return m;
}

// A table of 2^kBits bytes. bit[0] has the indices' bit 7, bit[1] their bit 8 and so on.
template <int kBits> LUCE_FN __m512i look_up(const uint8_t* table, __m512i index, const __mmask64* bit) {
    if constexpr (kBits == 7) {
        return _mm512_permutex2var_epi8(load(table), index, load(table + 64));
    } else {
        const __m512i a = look_up<kBits - 1>(table, index, bit), b = look_up<kBits - 1>(table + (1 << (kBits - 1)), index, bit);
        return _mm512_mask_blend_epi8(bit[kBits - 8], a, b);
    }
}

template <Type T> LUCE_FN const auto& grid_codes() {
    if constexpr (T == Type::IQ2_XXS) return kGrids.iq2_xxs_codes;
    else if constexpr (T == Type::IQ2_XS) return kGrids.iq2_xs_codes;
    else if constexpr (T == Type::IQ2_S) return kGrids.iq2_s_codes;
    else if constexpr (T == Type::IQ3_XXS) return kGrids.iq3_xxs_codes;
    else if constexpr (T == Type::IQ3_S) return kGrids.iq3_s_codes;
    else return kGrids.iq1_codes;
}

// offset + value, or offset - value, for codes up to 7.
template <Type T> LUCE_FN __m512i value_table(bool minus) {
    constexpr TileForm form = tile_form(T);
    uint8_t table[16] = {};
    for (int i = 0; i < 8; i++) {
        const uint8_t value = T == Type::IQ3_XXS ? kIq3XxsValues[i] : i < 4 ? kIq2Values[i] : 0;
        table[i] = static_cast<uint8_t>(minus ? form.offset - value : form.offset + value);
    }
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

// Bytes at these bits of each half of 64 bits, in the order of the columns.
LUCE_FN __m512i places(int a, int b, int c, int d) {
    const uint32_t low = static_cast<uint32_t>((a & 63) | (b & 63) << 8 | (c & 63) << 16 | (d & 63) << 24);
    return _mm512_set1_epi64(static_cast<int64_t>(low | static_cast<uint64_t>(low ^ 0x20202020u) << 32));
}

// The vectors of four columns from the codes of the indices' rows: bits 8 i .. of `low` and `high` belong to index i.
template <Type T> LUCE_FN __m512i spread_codes(__m512i low, __m512i high, int i, int part) {
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(8 * i));
    if constexpr (T == Type::IQ3_S || T == Type::IQ3_XXS) {  // codes of 3 bits, two in each table's byte; IQ3_S: doubled
        const __m512i from = _mm512_add_epi8(T == Type::IQ3_S ? places(-1, 2, -1, 2) : places(0, 3, 0, 3), shift);
        return _mm512_mask_multishift_epi64_epi8(_mm512_multishift_epi64_epi8(from, low), 0xcccccccccccccccc, from, high);
    } else {  // of 2 bits, four in each table's byte; IQ1: times 8
        const __m512i from = _mm512_add_epi8(T == Type::IQ1_S || T == Type::IQ1_M ? places(-3, -1, 1, 3) : places(0, 2, 4, 6), shift);
        return _mm512_multishift_epi64_epi8(from, part == 0 ? low : high);
    }
}

// Signs of vector `vector` of a group applied to codes; the result has the type's offset.
template <Type T> LUCE_FN __m512i signed_values(__m512i code, const uint8_t* signs, int vector) {
    if constexpr (T == Type::IQ3_S) {  // 16 + or - (1 + 2 code) = 2 code ^ 0x11 or ^ 0x0f
        const __m512i sign = _mm512_mask_blend_epi8(mask64(signs + 8 * vector), _mm512_set1_epi8(0x11), _mm512_set1_epi8(0x0f));
        return _mm512_ternarylogic_epi32(code, _mm512_set1_epi8(0x0e), sign, 0x6a);  // (code & 0x0e) ^ sign
    } else if constexpr (T == Type::IQ1_S || T == Type::IQ1_M) {  // 9 + 8 value + or - 1 = 8 code + 2 or + 0
        uint64_t m;
        memcpy(&m, signs, sizeof m);
        const __mmask64 minus = ((m >> (vector / 2)) & 0x1111111111111111u) * 15;
        const __m512i eights = _mm512_and_si512(code, _mm512_set1_epi8(0x18));
        return _mm512_mask_add_epi8(eights, ~minus, eights, _mm512_set1_epi8(2));
    } else {
        const __m512i bits = _mm512_and_si512(code, _mm512_set1_epi8(T == Type::IQ3_XXS ? 7 : 3));
        return _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(value_table<T>(false), bits), mask64(signs + 8 * vector), value_table<T>(true), bits);
    }
}

template <Type T> LUCE_FN void decode_grid_group(const uint8_t* quants, int s, __m512i (&v)[8]) {
    constexpr TileForm form = tile_form(T);
    constexpr int kVectors = form.index_vectors();
    const uint8_t* signs = quants + form.signs_at(s, form.index_bits == 11 ? 8 : 64);
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; h++) {
        const __m512i index = load(quants + form.group_bytes * s + 64 * h);
        __mmask64 bit[4] = {_mm512_movepi8_mask(index)};
        for (int i = 8; i < form.index_bits; i++) bit[i - 7] = mask64(quants + form.bits_at(s, h) + 8 * (i - 8));
        const __m512i low = look_up<form.index_bits>(grid_codes<T>().low, index, bit), high = look_up<form.index_bits>(grid_codes<T>().high, index, bit);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            if constexpr (kVectors == 2) {
                v[4 * h + i] = signed_values<T>(spread_codes<T>(low, high, i, 0), signs, 4 * h + i);
            } else {
                v[2 * i] = signed_values<T>(spread_codes<T>(low, high, i, 0), signs, 2 * i);
                v[2 * i + 1] = signed_values<T>(spread_codes<T>(low, high, i, 1), signs, 2 * i + 1);
            }
        }
    }
}

}  // namespace lucebox::cpu::zmm
