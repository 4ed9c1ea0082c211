// What ops take: rows quantised for the matmuls, weights, and the batch. Pointers are into the backend's memory.
#pragma once
#include "gguf/types.h"
#include <cstdint>

namespace lucebox::ops {

inline constexpr int kMaxRows = 128;     // rows a call
inline constexpr int kMaxSlots = 8;      // sequences
inline constexpr int kRing = 64;         // rows of raw DeltaNet inputs kept a slot
inline constexpr int kMaxPending = 32;   // accepted rows of a slot that its state may lack
inline constexpr int kPage = 256;        // tokens a KV page
inline constexpr int kGroup = 32;        // values that share an activation scale
inline constexpr int kSegment = 1024;    // columns of a weight row whose sum is one float chain
inline constexpr int kHeadDim = 128;     // keys and values of a DeltaNet head
inline constexpr int kCandidates = 16;   // tokens that a drafter's selector chooses from, at most
inline constexpr int kMaxDraftHidden = 16384;

// Rows as a matmul reads them. The CPU keeps them row-major; a backend may order q, d and sum as its kernels want.
struct Acts {
    int columns;      // a multiple of 32
    float* x;         // [rows, columns], unrounded: what F32, F16 and BF16 weights multiply
    int8_t* q;        // [rows, columns]
    float* d;         // [rows, columns / 32]
    int32_t* sum;     // [rows, columns / 16], sums of q, which types with a minimum need
};

struct Weight {
    gguf::Type type;
    int rows, columns;      // outputs, inputs
    const uint8_t* data;    // the file's blocks [rows, row_bytes]
    const uint8_t* packed;  // the backend's own order; null = it multiplies from data
};

// Rows of one sequence in a call. Rows of a sequence are adjacent and in order.
struct Span {
    int slot;
    int first, rows;   // into the batch
    int position;      // of the first row: index of the token in its sequence, from 0
    int pending;       // rows before it that are accepted but not yet in the DeltaNet state (in the ring); at most kMaxPending
    bool commit;       // these rows are accepted: take them into the state in this call; without it, rows is at most kRing - 3
    int context = 0;   // of a drafter's batch: rows before `position` that its ring holds
};

// The rows of a call. Fixed arrays, so that a captured graph can be replayed with other contents.
struct Batch {
    int rows, spans, wanted;
    int32_t token[kMaxRows];
    int32_t position[kMaxRows];
    int32_t slot[kMaxRows];
    int32_t want[kMaxRows];       // rows whose logits are computed, ascending, `wanted` of them
    Span span[kMaxSlots];
    int rope_dims;
    float* rope_cos;              // [rows, rope_dims / 2], by the host (model/rope.h)
    float* rope_sin;
};

}  // namespace lucebox::ops
