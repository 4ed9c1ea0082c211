// The device-only unit: every kernel under its stable name. clang -x hip makes the code objects, nvcc -x cu the cubins, the emulator includes it
// (docs/kernels.md).
#include "hip/argmax.h"
#include "hip/attention_tile.h"
#include "hip/deltanet.h"
#include "hip/draft_attention.h"
#include "hip/embed.h"
#include "hip/matmul_dot.h"
#include "hip/matmul_float.h"
#include "hip/matmul_grid.h"
#include "hip/matmul_k.h"
#include "hip/matmul_nibbles.h"
#include "hip/matmul_tile.h"
#include "hip/matmul_wide.h"
#include "hip/norm.h"
#include "hip/swiglu.h"
#include "hip/top_k.h"
#include "hip/walk.h"

using namespace lucebox::hip;
using lucebox::ops::KvForm;

LUCE_ENTRY(luce_norm, 32 * kNormWaves, 1, NormArgs, norm)
LUCE_ENTRY(luce_swiglu, 256, 1, SwigluArgs, swiglu)
LUCE_ENTRY(luce_argmax_parts, 256, 1, ArgmaxArgs, argmax_parts)
LUCE_ENTRY(luce_argmax_join, 32, 1, ArgmaxArgs, argmax_join)
LUCE_ENTRY(luce_deltanet_step, 256, 1, DeltanetArgs, deltanet_step)
LUCE_ENTRY(luce_deltanet_finish, 256, 1, DeltanetArgs, deltanet_finish)

#define LUCE_ATTENTION(name, form) \
    LUCE_ENTRY(luce_attention_prepare_##name, 256, 1, AttentionArgs, attention_prepare<KvForm::form>) \
    LUCE_ENTRY(luce_attention_part_##name, 256, 1, AttentionArgs, attention_part<KvForm::form>)
LUCE_ATTENTION(q8_0, Q8_0)
LUCE_ATTENTION(f16, F16)
LUCE_ATTENTION(f32, F32)
#if !defined(LUCE_DOT_TILES)
#define LUCE_ATTENTION_TILE(name, blocks) \
    LUCE_ENTRY(luce_attention_tile_##name##_segment, 256, 2, AttentionArgs, attention_tile<blocks, false>) \
    LUCE_ENTRY(luce_attention_tile_##name##_group, 256, 2, AttentionArgs, attention_tile<blocks, true>)
LUCE_ATTENTION_TILE(q8_0_d128, 4)
LUCE_ATTENTION_TILE(q8_0_d256, 8)
#endif
LUCE_ENTRY(luce_attention_join_groups, 256, 1, AttentionArgs, attention_join_groups)
LUCE_ENTRY(luce_attention_join, 256, 1, AttentionArgs, attention_join)

LUCE_ENTRY(luce_tap, 256, 1, TapArgs, tap)
LUCE_ENTRY(luce_quantize, 256, 1, QuantizeArgs, quantize_rows)
LUCE_ENTRY(luce_draft_conv, 256, 1, DraftConvArgs, draft_conv)
LUCE_ENTRY(luce_draft_prepare, 256, 1, DraftAttentionArgs, draft_prepare)
#define LUCE_DRAFT_PART(name, blocks) \
    LUCE_ENTRY(luce_draft_part_##name##_segment, 32 * kDraftWaves, 1, DraftAttentionArgs, draft_part<blocks, false>) \
    LUCE_ENTRY(luce_draft_part_##name##_group, 32 * kDraftWaves, 1, DraftAttentionArgs, draft_part<blocks, true>)
LUCE_DRAFT_PART(d128, 1)
LUCE_DRAFT_PART(d256, 2)
LUCE_ENTRY(luce_draft_join, 256, 1, DraftAttentionArgs, draft_join)
LUCE_ENTRY(luce_top_k_parts, 256, 1, TopKArgs, top_k_parts)
LUCE_ENTRY(luce_top_k_join, 256, 1, TopKArgs, top_k_join)
LUCE_ENTRY(luce_lattice_predecessors, 32, 1, LatticeArgs, lattice_predecessors)
LUCE_ENTRY(luce_lattice_edges, 256, 1, LatticeArgs, lattice_edges)
LUCE_ENTRY(luce_walk, 32, 1, WalkArgs, walk)

#define LUCE_FLOAT(name, Type) \
    LUCE_ENTRY(luce_embed_##name, 256, 1, EmbedArgs, embed_float<Type>) \
    LUCE_ENTRY(luce_matmul_##name, 256, 1, MatmulArgs, matmul_float<Type>)
LUCE_FLOAT(f32, F32)
LUCE_FLOAT(f16, F16)
LUCE_FLOAT(bf16, BF16)

inline constexpr int kRowsWaves = kAsyncCopies ? kWideWaves : kMatmulWaves;
template <class T, int kRows> LUCE_DEVICE void matmul_rows(const MatmulArgs& a) {
    if constexpr (kAsyncCopies) matmul_wide<T, kRows>(a);
    else matmul_tile<T, kRows>(a);
}

#define LUCE_QUANTISED(name, Type) \
    LUCE_ENTRY(luce_embed_##name, 256, 1, EmbedArgs, embed<Type>) \
    LUCE_ENTRY(luce_matmul_##name##_r1, 32 * kMatmulWaves, 3, MatmulArgs, matmul_dot<Type, 1>) \
    LUCE_ENTRY(luce_matmul_##name##_r2, 32 * kMatmulWaves, 2, MatmulArgs, matmul_dot<Type, 2>) \
    LUCE_ENTRY(luce_matmul_##name##_r4, 32 * kMatmulWaves, 2, MatmulArgs, matmul_dot<Type, 4>) \
    LUCE_ENTRY(luce_matmul_##name##_r8, kLeanThreads, 2, MatmulArgs, matmul_tile<Type, 8>) \
    LUCE_ENTRY(luce_matmul_##name##_r16, 32 * kMatmulWaves, 2, MatmulArgs, matmul_tile<Type, 16>) \
    LUCE_ENTRY(luce_matmul_##name##_r32, 32 * kRowsWaves, 1, MatmulArgs, matmul_rows<Type, 32>) \
    LUCE_ENTRY(luce_matmul_##name##_r64, 32 * kRowsWaves, 1, MatmulArgs, matmul_rows<Type, 64>)
LUCE_QUANTISED(q4_0, Q4_0)
LUCE_QUANTISED(q4_1, Q4_1)
LUCE_QUANTISED(q5_0, Q5_0)
LUCE_QUANTISED(q5_1, Q5_1)
LUCE_QUANTISED(q8_0, Q8_0)
LUCE_QUANTISED(mxfp4, MXFP4)
LUCE_QUANTISED(iq4_nl, IQ4_NL)
LUCE_QUANTISED(q2_K, Q2_K)
LUCE_QUANTISED(q3_K, Q3_K)
LUCE_QUANTISED(q4_K, Q4_K)
LUCE_QUANTISED(q5_K, Q5_K)
LUCE_QUANTISED(q6_K, Q6_K)
LUCE_QUANTISED(iq4_xs, IQ4_XS)
LUCE_QUANTISED(iq1_s, IQ1_S)
LUCE_QUANTISED(iq1_m, IQ1_M)
LUCE_QUANTISED(iq2_xxs, IQ2_XXS)
LUCE_QUANTISED(iq2_xs, IQ2_XS)
LUCE_QUANTISED(iq2_s, IQ2_S)
LUCE_QUANTISED(iq3_xxs, IQ3_XXS)
LUCE_QUANTISED(iq3_s, IQ3_S)
