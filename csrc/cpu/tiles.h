// The order in which the SIMD variants keep a weight: tiles of 16 outputs, so that lane l of a vector is output 16 t + l and nothing is
// ever summed across lanes. Tile t's block b has its quants at (t * blocks + b) * quant_bytes and, behind the quants of all tiles, its
// scales at (t * blocks + b) * scale_bytes: two streams, both read in order. A vector is [16 outputs][4 columns] bytes; eight make a group of
// 32 columns. A block's quants are its groups, then for types with a grid the parts of kGrid*, then for 256-value types the integer scales.
//   groups  4 bits: low nibbles of 4 vectors = columns 0 .. 15, high nibbles = 16 .. 31. Q8_0: 8 vectors of q ^ 0x80.
//           Q5_*: a vector more, bit i of its bytes belongs to vector i. Q6_K: two more, bits 2 i and 2 i + 1 of the first to vector i < 4.
//           Q2_K: two vectors as those of Q6_K. Q3_K: these, and one as that of Q5_*.
//           grids: low bytes of the indices [16 outputs][4], one for 8 columns (IQ3: one for 4, so two vectors)
//   grids   u64 a group and higher bit of the indices, in their order; then signs u64 [8 groups][8 vectors], bit 4 l + j of output l's
//           column j (IQ1: u64 [8 groups], in the order of the indices)
//   scales  [8 or 16][16 outputs] bytes, then minimums [8][16]; Q2_K: both as nibbles; IQ2_XS, IQ2_S, IQ1_M: both halves of a group as nibbles
// Scales of a block: d f16 [16] (MXFP4: its exponent byte), then dmin f16 [16].
#pragma once
#include "ops/tensor.h"

namespace lucebox::cpu {

inline constexpr int kLanes = 16;

struct TileForm {
    int block;                     // columns
    int group_bytes;               // of 32 columns
    int offset;                    // what makes a weight an unsigned byte; levels of a table are stored as indices
    bool halves;                   // an integer scale per 16 instead of 32 columns
    bool minimum;                  // Q2_K: per 16 columns
    int quant_bytes, scale_bytes;  // of a block; 0 = the type is not kept in tiles
    int index_bits = 0;            // of an index into a grid
    int integer_bytes = 0;         // integer scales and minimums

    constexpr int scales_at() const { return quant_bytes - integer_bytes; }
    constexpr int minimums_at() const { return quant_bytes - 128; }
    // Higher bits of the indices of group s, vector h of indices; signs of group s.
    constexpr int index_vectors() const { return group_bytes / 64; }
    constexpr int bits_at(int s, int h) const { return 8 * group_bytes + (s * index_vectors() + h) * 8 * (index_bits - 8); }
    constexpr int signs_at(int s, int bytes) const { return bits_at(8, 0) + s * bytes; }
};

constexpr TileForm tile_form(gguf::Type type) {
    using gguf::Type;
    const auto grid = [](int vectors, int bits, int offset, bool halves, int sign_bytes) {
        return TileForm{256, 64 * vectors, offset, halves, false, 8 * (64 * vectors + 8 * vectors * (bits - 8) + sign_bytes) + 128, 32, bits, 128};
    };
    switch (type) {
        case Type::Q4_0: return {32, 256, 8, false, false, 256, 32};
        case Type::Q4_1: return {32, 256, 0, false, true, 256, 64};
        case Type::Q5_0: return {32, 320, 16, false, false, 320, 32};
        case Type::Q5_1: return {32, 320, 0, false, true, 320, 64};
        case Type::Q8_0: return {32, 512, 128, false, false, 512, 32};
        case Type::IQ4_NL: return {32, 256, 128, false, false, 256, 32};
        case Type::MXFP4: return {32, 256, 12, false, false, 256, 16};
        case Type::IQ4_XS: return {256, 256, 128, false, false, 8 * 256 + 128, 32, 0, 128};
        case Type::Q2_K: return {256, 128, 0, true, true, 8 * 128 + 256, 64, 0, 256};
        case Type::Q3_K: return {256, 192, 4, true, false, 8 * 192 + 256, 32, 0, 256};
        case Type::Q4_K: return {256, 256, 0, false, true, 8 * 256 + 256, 64, 0, 256};
        case Type::Q5_K: return {256, 320, 0, false, true, 8 * 320 + 256, 64, 0, 256};
        case Type::Q6_K: return {256, 384, 32, true, false, 8 * 384 + 256, 32, 0, 256};
        case Type::IQ1_S: return grid(1, 11, 9, false, 8);
        case Type::IQ1_M: return grid(1, 11, 9, true, 8);
        case Type::IQ2_XXS: return grid(1, 8, 64, false, 64);
        case Type::IQ2_XS: return grid(1, 9, 64, true, 64);
        case Type::IQ2_S: return grid(1, 10, 64, true, 64);
        case Type::IQ3_XXS: return grid(2, 8, 64, false, 64);
        case Type::IQ3_S: return grid(2, 9, 16, false, 64);
        default: return {0, 0, 0, false, false, 0, 0};
    }
}
// What a block's d is multiplied with, so that the grid's values are integers.
constexpr float d_factor(gguf::Type type) {
    using gguf::Type;
    if (type == Type::IQ3_XXS) return 0.25f;
    return tile_form(type).index_bits && type != Type::IQ3_S ? 0.125f : 1.0f;
}

inline constexpr int8_t kFourBitLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Kernels::packed_bytes and Kernels::pack of both SIMD variants.
uint64_t tiles_bytes(gguf::Type type, uint64_t rows, uint64_t columns);
void pack_tiles(const ops::Weight& w, int first, int last, uint8_t* packed);

}  // namespace lucebox::cpu
