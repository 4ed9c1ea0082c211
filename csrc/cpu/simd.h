// The functions of the SIMD variants, ymm = AVX2 and zmm = AVX-512; their tables are in variants_x86.cpp. Units of a variant hold nothing with external inline linkage:
// a copy compiled for another instruction set could otherwise be the one that the linker keeps for all.
#pragma once
#include "cpu/kernels.h"
#include "cpu/tiles.h"

#define LUCE_VARIANT(name)                                                                                                       \
    namespace lucebox::cpu::name {                                                                                               \
    void norm_row(const float* x, const float* w, int n, float eps, float* y);                                                   \
    void quantize_row(const float* x, int n, int8_t* q, float* d, int32_t* sum);                                                 \
    void swiglu_row(const float* gate, const float* up, int n, float* y);                                                        \
    void matmul(const ops::Weight& w, const ops::Acts& acts, int rows, int first, int last, float* y, int stride);               \
    void conv_silu(const float* const* taps, const float* conv, int first, int last, float* y);                                  \
    void l2_norm(float* x, float eps, bool query);                                                                               \
    void delta(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o);                     \
    void gated_norm(const float* o, const float* norm, const float* z, float eps, float* y);                                     \
    void rotate(float* x, const float* cos, const float* sin, int half);                                                         \
    void store_kv(const ops::KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key);                             \
    void attend(const AttendGroup& group);                                                                                       \
    int32_t argmax_row(const float* logits, int n);                                                                              \
    void math_row(MathFunction function, const float* x, int n, float* y);                                                                              \
    }
LUCE_VARIANT(ymm)
LUCE_VARIANT(zmm)
#undef LUCE_VARIANT
