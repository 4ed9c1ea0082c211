// Weights in the kernels' own order (matmul_types.h), for every chip the same; and rows of activations as the kernels keep them, back in the order of
// ops/tensor.h, for tests.
#pragma once
#include "hip/params.h"

namespace lucebox::hip {

uint64_t packed_bytes(gguf::Type type, uint64_t rows, uint64_t columns);
// Outputs first .. last - 1 (first a multiple of 32) of the file's blocks into `out`, which begins with output `first`.
void pack(gguf::Type type, const uint8_t* data, int rows, int columns, int first, int last, uint8_t* out);

// Rows (params.h) to ops::Acts' row-major q, d and sum.
void unpack_rows(const uint8_t* q, const float* d, const float* sums, int rows, int columns, int8_t* q_out, float* d_out, int32_t* sum_out);
void pack_rows(const int8_t* q, const float* d, const int32_t* sum, int rows, int columns, uint8_t* q_out, float* d_out, float* sums_out);
// Index of S[key][value] in a head's state (params.h).
inline int state_index(int key, int value) { return ((key % 32 / 4 * 128 + value) * 4 + key / 32) * 4 + key % 4; }

}  // namespace lucebox::hip
