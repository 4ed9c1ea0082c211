// Block formats: decode to integers and scales (what the matmuls multiply), decode to f32 (what the embedding reads) and encoders.
// Formulas: docs of the GGUF formats; every decoder is compared with gguf's, bit by bit. One file a family beside this header.
#pragma once
#include "gguf/types.h"
#include <cstddef>
#include <cstdint>

namespace lucebox::quants {

// One block of a quantised type as integers. Value e = d * scale[e / 16] * q[e], and then
//   256-value types with a minimum (Q2_K, Q4_K, Q5_K): - dmin * min[e / 16]
//   32-value types with a minimum (Q4_1, Q5_1):        + dmin
// scale is 1 where the type has none. d holds the type's constant factor (IQ1 d/8, IQ2 d/8, IQ3_XXS d/4).
struct Block {
    int8_t q[256];
    int8_t scale[16];
    uint8_t min[16];
    float d, dmin;
};

bool has_minimum(gguf::Type type);
// type is a quantised type with TypeInfo::matrix; block has its bytes.
void decode_block(gguf::Type type, const uint8_t* block, Block& out);

// n values (a multiple of the block) to f32 by the formula of each type, scale first; also F32, F16, BF16.
void dequantize(gguf::Type type, const uint8_t* data, float* y, size_t n);

// Reference encoders: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K, IQ4_XS. x [n]; importance [columns] or null, a weight a column (quants
// that take none ignore it); n a multiple of columns, columns of the block. out has row_bytes. Other types throw Error(kRequest).
void quantize(gguf::Type type, const float* x, size_t n, size_t columns, const float* importance, uint8_t* out);

float from_f16(uint16_t bits);
uint16_t to_f16(float x);      // round to nearest even
float from_bf16(uint16_t bits);
uint16_t to_bf16(float x);     // round to nearest even

}  // namespace lucebox::quants
