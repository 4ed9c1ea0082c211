// Up to eight rows times one tile: a weight is decoded in registers and used at once. One to four rows are bound by memory, more by the
// products: 8 vpdpbusd, a vpmulld and an fma for 512 of them, one a cycle on Zen 4; decoding hides beside these.
#pragma once
#include "cpu/tiles_avx512.h"

namespace lucebox::cpu::zmm {

inline constexpr int kBlockRows = 8, kChunk = 256, kChunkGroups = kChunk / 32;

// What a row brings to 256 columns beside its bytes: -offset * sum (per 16 or 32), which makes unsigned weights signed again, and d * sum.
template <bool kHalves, bool kMinimum>
LUCE_FN void row_terms(const float* d, const int32_t* sum, int groups, int offset, int32_t* minus_offset, float* d_sum) {
    const __m512i sums = _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << 2 * groups) - 1), sum);
    const __m512i scaled = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-offset));
    if constexpr (kHalves) {
        _mm512_storeu_si512(minus_offset, scaled);
        return;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(minus_offset), _mm512_cvtepi64_epi32(_mm512_add_epi32(scaled, _mm512_srli_epi64(scaled, 32))));
    if constexpr (kMinimum) {
        const __m256i both = _mm512_cvtepi64_epi32(_mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32)));
        const __m256 ds = _mm256_maskz_loadu_ps(static_cast<__mmask8>((1u << groups) - 1), d);
        _mm256_storeu_ps(d_sum, _mm256_mul_ps(ds, _mm256_cvtepi32_ps(both)));
    }
}

// P of 32 columns: the integer dot with its scales.
template <Type T> LUCE_FN __m512 dot32(const __m512i (&v)[8], const int8_t* q, const int32_t* minus_offset, __m512i scale0, __m512i scale1) {
    constexpr TileForm form = tile_form(T);
    __m512i c0 = _mm512_set1_epi32(minus_offset[0]), c1 = form.halves ? _mm512_set1_epi32(minus_offset[1]) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        c0 = _mm512_dpbusd_epi32(c0, v[j], spread32(q + 4 * j));
        c1 = _mm512_dpbusd_epi32(c1, v[4 + j], spread32(q + 16 + 4 * j));
    }
    if constexpr (form.halves) return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_mullo_epi32(c0, scale0), _mm512_mullo_epi32(c1, scale1)));
    const __m512i c = _mm512_add_epi32(c0, c1);
    return _mm512_cvtepi32_ps(form.block == 256 ? _mm512_mullo_epi32(c, scale0) : c);
}

// Rows first .. first + R - 1 of acts; y is the place of the first row's first output.
template <Type T, int R>
static void stream_tile(const uint8_t* quants, const uint8_t* scales, const ops::Acts& acts, int first, float* y, int stride, __mmask16 outputs) {
    constexpr TileForm form = tile_form(T);
    constexpr bool kSuper = form.block == 256;
    // Prefetches are spread over the groups: a burst of a whole block stalls (11-12 instead of 20 GB/s with 2 rows).
    constexpr int kStep = (form.quant_bytes / (form.block / 32) + 63) / 64 * 64, kAhead = 4096;
    const int columns = acts.columns;
    const int8_t* q = acts.q + static_cast<size_t>(first) * columns;
    const float* d = acts.d + static_cast<size_t>(first) * columns / 32;
    const int32_t* sum = acts.sum + static_cast<size_t>(first) * columns / 16;
    const __m512 zero = _mm512_setzero_ps();
    __m512 total[R], acc[R];
    for (int r = 0; r < R; r++) total[r] = acc[r] = zero;
    for (int at = 0; at < columns; at += kChunk) {
        const int groups = kSuper || columns - at >= kChunk ? kChunkGroups : (columns - at) / 32;
        alignas(64) int32_t minus_offset[R][form.halves ? 16 : 8];
        float d_sum[R][8];
        __m512 f[R], g[R];
        for (int r = 0; r < R; r++) {
            row_terms<form.halves, form.minimum>(d + (r * columns + at) / 32, sum + (r * columns + at) / 16, groups, form.offset, minus_offset[r], d_sum[r]);
            f[r] = g[r] = zero;
        }
        const uint8_t* integers = quants + form.block / 32 * form.group_bytes;
        __m512i v[8], scale0 = _mm512_setzero_si512(), scale1 = scale0;
        for (int s = 0; s < groups; s++) {
            const uint8_t* group = quants + s * form.group_bytes;
#pragma GCC unroll 8
            for (int p = 0; p < kStep; p += 64) _mm_prefetch(reinterpret_cast<const char*>(quants) + s * kStep + p + kAhead, _MM_HINT_T0);
            decode_group<T>(group, v);
            if constexpr (form.halves) scale0 = signed16(integers + 32 * s), scale1 = signed16(integers + 32 * s + 16);
            else if constexpr (kSuper) scale0 = signed16(integers + 16 * s);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const __m512 P = dot32<T>(v, q + r * columns + at + 32 * s, minus_offset[r] + (form.halves ? 2 * s : s), scale0, scale1);
                const __m512 da = _mm512_set1_ps(d[(r * columns + at) / 32 + s]), sums = _mm512_set1_ps(d_sum[r][s]);
                if constexpr (kSuper) {
                    f[r] = _mm512_fmadd_ps(da, P, f[r]);
                    if constexpr (form.minimum) g[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(unsigned16(integers + 128 + 16 * s)), sums, g[r]);
                } else {
                    acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(block_scale<T>(scales + s * form.scale_bytes, 0), da), P, acc[r]);
                    if constexpr (form.minimum) acc[r] = _mm512_fmadd_ps(block_scale<T>(scales + s * form.scale_bytes, 1), sums, acc[r]);
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R && kSuper; r++) {
            acc[r] = _mm512_fmadd_ps(block_scale<T>(scales, 0), f[r], acc[r]);
            if constexpr (form.minimum) acc[r] = _mm512_fnmadd_ps(block_scale<T>(scales, 1), g[r], acc[r]);
        }
        quants += (kSuper ? 1 : kChunkGroups) * form.quant_bytes, scales += (kSuper ? 1 : kChunkGroups) * form.scale_bytes;
        if ((at + kChunk) % ops::kSegment && at + kChunk < columns) continue;
        for (int r = 0; r < R; r++) total[r] = at < ops::kSegment ? acc[r] : _mm512_add_ps(total[r], acc[r]), acc[r] = zero;
    }
    for (int r = 0; r < R; r++) _mm512_mask_storeu_ps(y + static_cast<size_t>(r) * stride, outputs, total[r]);
}

}  // namespace lucebox::cpu::zmm
