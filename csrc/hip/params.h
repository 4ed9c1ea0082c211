// What kernels take: one struct by value, all of it fixed at load. What changes between steps is in device memory, above all the batch.
// Shared by the kernels and their launches.
#pragma once
#include "ops/tensor.h"

namespace lucebox::hip {

// Rows as the kernels keep them, over the memory of ops::Acts; rows come in tiles of 16, so that memory for a multiple of 16 rows is needed.
//   x    [rows, columns] f32
//   q    [rows / 16][columns / 32][16 rows][32 bytes]: chunk c (arch/maps.h) is bytes 8c .. 8c + 7
//   d    [rows / 16][columns / 32][16 rows]
//   sums [rows / 16][columns / 32][2][16 rows]: f32 d * float(sum of the 32 q); then the sums of the first and last 16 q as two i16
inline constexpr int kTileRows = 16;
struct Rows {
    float* x;
    uint8_t* q;
    float* d;
    float* sums;
    int columns;
};

struct EmbedArgs {
    const ops::Batch* batch;  // its tokens
    const int32_t* ids;       // or these; one below 0 is left out
    const uint8_t* data;  // records (matmul_types.h), or rows of F32, F16, BF16
    float* h;             // [rows, columns]
    int columns;
};
inline constexpr int kNormWaves = 20;  // of a workgroup: 5,120 values are two turns of 128 a wave
struct NormArgs {
    const float* x;         // [rows, hidden]
    const float* weight;    // [hidden]
    const int32_t* select;  // [count] or null
    int hidden;
    float eps;
    Rows y;
};
struct SwigluArgs {
    const float* gate;  // [rows, ff]
    const float* up;    // [rows, ff]
    int ff;
    Rows y;
};

inline constexpr int kArgmaxParts = 64;
struct Best {
    float value;
    int32_t id;  // -1: there is a NaN
};
struct ArgmaxArgs {
    const float* logits;  // [rows, vocab]
    int vocab;
    Best* parts;          // [rows, kArgmaxParts]
    int32_t* id;          // [rows]
};

inline constexpr int kMatmulWaves = 8, kWideWaves = 12;  // of a workgroup, at most; the second of matmul_wide.h,
inline constexpr int kWideSlots = 3;                     // whose ring has so many units a line
// Several weights of one type and one input: workgroups first .. of the grid's x take a weight's tiles.
struct MatmulPart {
    const uint8_t* weight;  // records (matmul.h), or the file's rows for F32, F16, BF16
    float* y;               // [rows, outputs]
    int outputs, first;
};
struct MatmulArgs {
    Rows x;
    int rows, parts;
    int waves;     // of a workgroup
    int tiles;     // of 16 outputs that a workgroup takes (matmul_wide.h)
    int slots;     // segments whose sums workgroup memory holds: a multiple of waves, or all of a shared tile's workgroup
    int residual;  // y += product
    int splits;    // workgroups that share a tile's segments (grid z); where more than one, slots is at least a workgroup's segments
    int blocks;    // grid x
    float* partial;     // [blocks * row groups][segments][values of a tile], where splits > 1
    uint32_t* arrived;  // [blocks * row groups], zeros
    MatmulPart part[4];
};

// The state is kept as its kernel's registers are: [slots][value_heads][32 keys / 4 = 8][128 values][4 key quarters][4 keys]: S[k][v] is at
// ((k % 32 / 4 * 128 + v) * 4 + k / 32) * 4 + k % 4 of its head.
struct DeltanetArgs {
    const ops::Batch* batch;
    int key_heads, value_heads;
    float eps;
    const float* u;      // [rows, channels]
    const float* alpha;  // [rows, value_heads]
    const float* beta;   // [rows, value_heads]
    const float* z;      // [rows, value_heads * 128]
    const float* conv;   // [channels, 4]
    const float* dt;     // [value_heads]
    const float* a;      // [value_heads]
    const float* norm;   // [128]
    float* state;
    float* ring_u;       // [slots, 64, channels]
    float* ring_ab;      // [slots, 64, 2, value_heads]
    Rows y;              // y.x holds the raw o between the two kernels
};

// KV pages are those of ops/kv.h. Partial results: [part][row][head][head_dim + 2]: o, then m and l; m is -Inf and l 0 for a part without keys.
struct AttentionArgs {
    const ops::Batch* batch;
    int heads, kv_heads, head_dim, rope_dims;
    float eps, factor;
    float* qg;             // [rows, heads, 2, head_dim]
    float* k;              // [rows, kv_heads, head_dim]
    const float* v;        // [rows, kv_heads, head_dim]
    const float* q_norm;   // [head_dim]
    const float* k_norm;   // [head_dim]
    uint8_t* pages;
    const int32_t* table;  // [slots, max_pages]
    int max_pages;
    int8_t* q;             // [rows, heads, head_dim], the queries as int8, in y's memory until the join
    float* q_scale;        // [rows, heads, head_dim / 32], likewise
    float* parts;
    int rows;              // that parts has room for
    int part_keys;         // keys of a part: 256, 4096, or more than there are
    int part_step;         // places from a part to the next: 16 once segments are joined to groups
    int query_tiles;       // tiles of 16 queries a part, of attention_tile and draft_part
    Rows y;
};

struct TapArgs {
    const float* h;   // [rows, hidden]
    int hidden;
    float* out;       // [rows, columns]
    int columns, offset;
    int32_t* mended;  // [rows]
};
struct QuantizeArgs {
    const float* x;         // [rows, columns]
    const int32_t* select;  // [count]
    int columns;
    Rows y;
};
struct DraftConvArgs {
    const ops::Batch* batch;
    int hidden, group, side;
    const float* x;      // [rows, hidden]
    const float* delta;  // [rows, 2, 2, hidden / group]
    const float* base;   // [2, 2, hidden]
    float* h;            // [rows, hidden], or null
    Rows y;
};
inline constexpr int kDraftQueries = 16, kDraftWaves = 4;  // of a workgroup
struct DraftAttentionArgs {
    AttentionArgs kv;  // qg: queries without gates; heads 0: keys and values are stored, nothing else
    int window, causal;
};
inline constexpr int kTopKParts = 64;
struct TopKArgs {
    const float* logits;  // [rows, vocab]
    int vocab, k;
    float multiplier, softcap;
    Best* parts;          // [rows, kTopKParts, kCandidates]
    int32_t* id;          // [rows, kCandidates]
    float* value;         // [rows, kCandidates]
};
struct LatticeArgs {
    const ops::Batch* batch;
    int count, rank, k;   // rank 0: no codebooks
    const float* g;       // [count, rank]
    const int32_t* id;    // [count, kCandidates]
    const float* value;   // [count, kCandidates]
    int32_t* before;      // [count, kCandidates]
    const float* codes;   // [2, count, kCandidates, rank]
    float* edge;          // [count, kCandidates, kCandidates]
};

struct WalkArgs {
    const ops::Batch* draft;
    ops::Batch* verify;
    int k;
    const int32_t* id;  // [rows, kCandidates]
    const float* edge;  // [rows, kCandidates, kCandidates]
    int32_t* path;      // [rows]
};

}  // namespace lucebox::hip
