// The inner functions of the ops, one table a variant. `portable` is written for reading and is what the others are compared with, bit by bit.
#pragma once
#include "error.h"
#include "ops/backend.h"
#include <string>
#include <vector>

namespace lucebox::cpu {

// One row and the query heads that share a kv head, against the keys first .. last of its sequence.
struct AttendGroup {
    ops::KvLayout layout;
    const uint8_t* pages;
    const int32_t* table;  // pages of the sequence
    int first, last;       // first is 0 with q8_0
    int kv_head;
    int heads;             // query heads of the group
    bool gated;            // whether a gate lies behind each query
    const float* qg;       // [heads, 2 or 1, head_dim], query after norm and RoPE, and gate
    const int8_t* q;       // [heads, head_dim], the queries quantised per 32
    const float* d;        // [heads, head_dim / 32]
    float factor;          // f32(1 / sqrt(head_dim))
    float* y;              // [heads, head_dim]

    size_t stride() const { return static_cast<size_t>(gated ? 2 : 1) * static_cast<size_t>(layout.head_dim); }
};

enum class MathFunction { kExp, kSigmoid, kSilu, kSoftplus, kF16 };

struct Kernels {
    const char* name;

    // ops/norm.h
    void (*norm_row)(const float* x, const float* w, int n, float eps, float* y);
    void (*quantize_row)(const float* x, int n, int8_t* q, float* d, int32_t* sum);
    // ops/swiglu.h
    void (*swiglu_row)(const float* gate, const float* up, int n, float* y);
    // ops/matmul.h: outputs first .. last - 1 of all rows into y[row * stride + output - first]; first is a multiple of 16.
    uint64_t (*packed_bytes)(gguf::Type type, uint64_t rows, uint64_t columns);
    void (*pack)(const ops::Weight& w, int first, int last, uint8_t* packed);
    void (*matmul)(const ops::Weight& w, const ops::Acts& acts, int rows, int first, int last, float* y, int stride);
    // ops/deltanet.h: taps[0..3] point to [channels], oldest first; channels first .. last - 1.
    void (*conv_silu)(const float* const* taps, const float* conv, int first, int last, float* y);
    void (*l2_norm)(float* x, float eps, bool query);
    void (*delta)(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o);
    void (*gated_norm)(const float* o, const float* norm, const float* z, float eps, float* y);
    // ops/attention.h
    void (*rotate)(float* x, const float* cos, const float* sin, int half);
    void (*store_kv)(const ops::KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key);
    void (*attend)(const AttendGroup& group);
    // ops/argmax.h
    int32_t (*argmax_row)(const float* logits, int n);
    // ops/math.h as this variant's compiler flags make it; for tests
    void (*math_row)(MathFunction function, const float* x, int n, float* y);
};

const Kernels& portable();
// Null where this build lacks the variant (another processor family).
const Kernels* avx2();
const Kernels* avx512();

struct Features {
    bool fma, avx2, f16c, avx512, avx512_vnni, avx512_vbmi;
};
Features features();
// Variants that this machine runs, the slowest first.
std::vector<const Kernels*> variants();
// "auto" or a name; throws Error(kRequest) that lists the names.
const Kernels& choose(const std::string& variant);

}  // namespace lucebox::cpu
