// The order in which the SIMD variants keep a weight: tiles of 16 outputs, so that lane l of a vector is output 16 t + l and nothing is
// ever summed across lanes. Tile t's block b has its quants at (t * blocks + b) * quant_bytes and, behind the quants of all tiles, its
// scales at (t * blocks + b) * scale_bytes: two streams, both read in order. A vector is [16 outputs][4 columns] bytes. Quants of a block:
//   per 32 columns: low nibbles of 4 vectors = columns 0 .. 15, high nibbles = 16 .. 31 (Q8_0: 8 vectors of bytes, q ^ 0x80)
//   Q5_*: one vector more, bit i of its bytes belongs to vector i;  Q6_K: two more, bits 2 i and 2 i + 1 of the first to vector i < 4
//   IQ3_S: per 32 columns low bytes of the grid's indices [2][16 outputs][4 vectors]; then per block their ninth bits u64 [8][2] in the same
//     order, and signs u64 [8][8 vectors], bit 4 l + j of output l's column j
//   256-value types: then integer scales [8 or 16][16], then minimums [8][16]
// Scales of a block: d f16 [16] (MXFP4: its exponent byte), then dmin f16 [16].
#pragma once
#include "ops/tensor.h"

namespace lucebox::cpu {

inline constexpr int kLanes = 16;

struct TileForm {
    int block;        // columns
    int group_bytes;  // of 32 columns
    int offset;       // what makes a weight an unsigned byte; levels of a table are stored as indices
    bool halves;      // an integer scale per 16 instead of 32 columns
    bool minimum;
    int quant_bytes, scale_bytes;  // of a block; 0 = the type is not kept in tiles

    // Where a 256-block's integer scales start in its quants, and its minimums.
    constexpr int scales_at() const { return quant_bytes - (minimum ? 256 : halves ? 256 : 128); }
    constexpr int minimums_at() const { return quant_bytes - 128; }
};
inline constexpr int kIq3High = 8 * 128, kIq3Signs = kIq3High + 8 * 16;  // places in an IQ3_S block's quants

constexpr TileForm tile_form(gguf::Type type) {
    using gguf::Type;
    switch (type) {
        case Type::Q4_0: return {32, 256, 8, false, false, 256, 32};
        case Type::Q4_1: return {32, 256, 0, false, true, 256, 64};
        case Type::Q5_0: return {32, 320, 16, false, false, 320, 32};
        case Type::Q5_1: return {32, 320, 0, false, true, 320, 64};
        case Type::Q8_0: return {32, 512, 128, false, false, 512, 32};
        case Type::IQ4_NL: return {32, 256, 128, false, false, 256, 32};
        case Type::MXFP4: return {32, 256, 12, false, false, 256, 16};
        case Type::IQ4_XS: return {256, 256, 128, false, false, 8 * 256 + 128, 32};
        case Type::Q4_K: return {256, 256, 0, false, true, 8 * 256 + 256, 64};
        case Type::Q5_K: return {256, 320, 0, false, true, 8 * 320 + 256, 64};
        case Type::Q6_K: return {256, 384, 32, true, false, 8 * 384 + 256, 32};
        case Type::IQ3_S: return {256, 128, 16, false, false, 8 * (128 + 16 + 64) + 128, 32};
        default: return {0, 0, 0, false, false, 0, 0};
    }
}

inline constexpr int8_t kFourBitLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Kernels::packed_bytes and Kernels::pack of both SIMD variants.
uint64_t tiles_bytes(gguf::Type type, uint64_t rows, uint64_t columns);
void pack_tiles(const ops::Weight& w, int first, int last, uint8_t* packed);

}  // namespace lucebox::cpu
