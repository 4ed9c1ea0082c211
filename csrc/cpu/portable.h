// The portable variant's functions, one group an op; the table is in dispatch.cpp.
#pragma once
#include "cpu/kernels.h"

namespace lucebox::cpu {

void portable_norm_row(const float* x, const float* w, int n, float eps, float* y);
void portable_quantize_row(const float* x, int n, int8_t* q, float* d, int32_t* sum);
void portable_swiglu_row(const float* gate, const float* up, int n, float* y);
uint64_t portable_packed_bytes(gguf::Type type, uint64_t rows, uint64_t columns);
void portable_pack(const ops::Weight& w, int first, int last, uint8_t* packed);
void portable_matmul(const ops::Weight& w, const ops::Acts& acts, int rows, int first, int last, float* y, int stride);
void portable_conv_silu(const float* const* taps, const float* conv, int first, int last, float* y);
void portable_l2_norm(float* x, float eps, bool query);
void portable_delta(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o);
void portable_gated_norm(const float* o, const float* norm, const float* z, float eps, float* y);
void portable_rotate(float* x, const float* cos, const float* sin, int half);
void portable_store_kv(const ops::KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key);
void portable_attend(const AttendGroup& group);
int32_t portable_argmax_row(const float* logits, int n);
void portable_math_row(MathFunction function, const float* x, int n, float* y);

}  // namespace lucebox::cpu
