// One to four rows times one tile: a weight is decoded in registers and used at once; memory is the limit.
#pragma once
#include "cpu/tiles_avx512.h"

namespace lucebox::cpu::zmm {

// Rows of activations from the first one of the call.
struct Rows {
    const int8_t* q;     // [rows, columns]
    const float* d;      // [rows, columns / 32]
    const int32_t* sum;  // [rows, columns / 16]
    int columns;
};

// The eight d * (sum of 32) of a 256-block.
LUCE_FN void scaled_sums(const float* d, const int32_t* sum, float (&out)[8]) {
    const __m512i pairs = load(sum);
    const __m256i s = _mm512_cvtepi64_epi32(_mm512_add_epi32(pairs, _mm512_srli_epi64(pairs, 32)));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_loadu_ps(d), _mm256_cvtepi32_ps(s)));
}

template <Type T, int R> static void stream_tile(const uint8_t* quants, const uint8_t* scales, const Rows& x, float* y, int stride, __mmask16 outputs) {
    constexpr TileForm form = tile_form(T);
    constexpr int kGroups = form.block / 32, kBlocksASegment = ops::kSegment / form.block;
    // Prefetches are spread over the groups: a burst of a whole block stalls (11-12 instead of 20 GB/s with 2 rows).
    constexpr int kStep = (form.quant_bytes / kGroups + 63) / 64 * 64, kAhead = 4096;
    const int blocks = x.columns / form.block;
    const __m512i minus_offset = _mm512_set1_epi32(-form.offset & 0xffff);
    const __m512 zero = _mm512_setzero_ps();
    __m512 total[R], acc[R];
    for (int r = 0; r < R; r++) total[r] = acc[r] = zero;
    for (int b = 0; b < blocks; b++, quants += form.quant_bytes, scales += form.scale_bytes) {
        __m512 f[R], g[R];
        float sums[R][8];
        for (int r = 0; r < R; r++) f[r] = g[r] = zero;
        if constexpr (kGroups == 8 && form.minimum)
            for (int r = 0; r < R; r++) scaled_sums(x.d + (r * x.columns + b * 256) / 32, x.sum + (r * x.columns + b * 256) / 16, sums[r]);
        const uint8_t* integers = quants + kGroups * form.group_bytes;
#pragma GCC unroll 2
        for (int s = 0; s < kGroups; s++) {
            __m512i v[8];
#pragma GCC unroll 8
            for (int p = 0; p < kStep; p += 64) _mm_prefetch(reinterpret_cast<const char*>(quants) + s * kStep + p + kAhead, _MM_HINT_T0);
            decode_group<T>(quants + s * form.group_bytes, v);
            __m512i scale0 = _mm512_setzero_si512(), scale1 = scale0;
            if constexpr (form.halves) scale0 = signed16(integers + 32 * s), scale1 = signed16(integers + 32 * s + 16);
            else if constexpr (kGroups == 8) scale0 = signed16(integers + 16 * s);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                const int at = r * x.columns + b * form.block + 32 * s;
                const float* d = x.d + at / 32;
                const int32_t* sum = x.sum + at / 16;
                __m512i c0 = _mm512_setzero_si512(), c1 = c0;
                if constexpr (form.offset != 0) c0 = _mm512_dpwssd_epi32(c0, minus_offset, spread32(sum)), c1 = _mm512_dpwssd_epi32(c1, minus_offset, spread32(sum + 1));
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) {
                    c0 = _mm512_dpbusd_epi32(c0, v[j], spread32(x.q + at + 4 * j));
                    c1 = _mm512_dpbusd_epi32(c1, v[4 + j], spread32(x.q + at + 16 + 4 * j));
                }
                if constexpr (kGroups == 1) {
                    const __m512 P = _mm512_cvtepi32_ps(_mm512_add_epi32(c0, c1));
                    acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(block_scale<T>(scales, 0), _mm512_set1_ps(*d)), P, acc[r]);
                    if constexpr (form.minimum) acc[r] = _mm512_fmadd_ps(block_scale<T>(scales, 1), _mm512_set1_ps(*d * static_cast<float>(sum[0] + sum[1])), acc[r]);
                } else {
                    __m512i P;
                    if constexpr (form.halves) P = _mm512_add_epi32(_mm512_mullo_epi32(c0, scale0), _mm512_mullo_epi32(c1, scale1));
                    else P = _mm512_mullo_epi32(_mm512_add_epi32(c0, c1), scale0);
                    f[r] = _mm512_fmadd_ps(_mm512_set1_ps(*d), _mm512_cvtepi32_ps(P), f[r]);
                    if constexpr (form.minimum) g[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(unsigned16(integers + 128 + 16 * s)), _mm512_set1_ps(sums[r][s]), g[r]);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            if constexpr (kGroups == 8) acc[r] = _mm512_fmadd_ps(block_scale<T>(scales, 0), f[r], acc[r]);
            if constexpr (kGroups == 8 && form.minimum) acc[r] = _mm512_fnmadd_ps(block_scale<T>(scales, 1), g[r], acc[r]);
        }
        if ((b + 1) % kBlocksASegment && b + 1 < blocks) continue;
        const bool first = b < kBlocksASegment;
        for (int r = 0; r < R; r++) total[r] = first ? acc[r] : _mm512_add_ps(total[r], acc[r]), acc[r] = zero;
    }
    for (int r = 0; r < R; r++) _mm512_mask_storeu_ps(y + static_cast<size_t>(r) * stride, outputs, total[r]);
}

}  // namespace lucebox::cpu::zmm
