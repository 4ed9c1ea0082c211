// Up to eight rows times one tile: a weight is decoded in registers and used at once. One to four rows are bound by memory, more by the
// products: 8 vpdpbusd, a vpmulld and an fma for 512 of them, one a cycle on Zen 4; decoding hides beside these.
#pragma once
#include "cpu/grids_avx512.h"

namespace lucebox::cpu::zmm {

inline constexpr int kBlockRows = 8, kChunk = 256, kChunkGroups = kChunk / 32;

// What a row brings to 256 columns beside its bytes: -offset * sum (per 16 or 32), which makes unsigned weights signed again, and d * sum
// (per 32, or 16 for Q2_K).
template <bool kHalves, bool kMinimum>
LUCE_FN void row_terms(const float* d, const int32_t* sum, int groups, int offset, int32_t* minus_offset, float* d_sum) {
    const __m512i sums = _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << 2 * groups) - 1), sum);
    if constexpr (kHalves) {
        _mm512_storeu_si512(minus_offset, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-offset)));
        if constexpr (kMinimum) {
            const __m512 twice = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), _mm512_castps256_ps512(_mm256_loadu_ps(d)));
            _mm512_storeu_ps(d_sum, _mm512_mul_ps(twice, _mm512_cvtepi32_ps(sums)));
        }
        return;
    }
    const __m256i both = _mm512_cvtepi64_epi32(_mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(minus_offset), _mm256_mullo_epi32(both, _mm256_set1_epi32(-offset)));
    if constexpr (kMinimum) {
        const __m256 ds = _mm256_maskz_loadu_ps(static_cast<__mmask8>((1u << groups) - 1), d);
        _mm256_storeu_ps(d_sum, _mm256_mul_ps(ds, _mm256_cvtepi32_ps(both)));
    }
}

// P of 32 columns for R rows: integer dots with their scales. Few rows have two chains each, so that latency does not bind.
template <Type T, int R>
LUCE_FN void dot32(const __m512i (&v)[8], const int8_t* const (&q)[R], const int32_t (*minus_offset)[tile_form(T).halves ? 16 : 8], int s, __m512i scale0, __m512i scale1,
                   __m512 (&P)[R]) {
    constexpr TileForm form = tile_form(T);
    constexpr bool kTwo = form.halves || R < 4;
    __m512i c0[R], c1[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        c0[r] = form.offset == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(minus_offset[r][form.halves ? 2 * s : s]);
        c1[r] = form.halves ? _mm512_set1_epi32(minus_offset[r][2 * s + 1]) : _mm512_setzero_si512();
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) c0[r] = _mm512_dpbusd_epi32(c0[r], v[j], spread32(q[r] + 32 * s + 4 * j));
    if constexpr (form.halves)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) c0[r] = _mm512_mullo_epi32(c0[r], scale0);
#pragma GCC unroll 4
    for (int j = 4; j < 8; j++)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            __m512i& c = kTwo ? c1[r] : c0[r];
            c = _mm512_dpbusd_epi32(c, v[j], spread32(q[r] + 32 * s + 4 * j));
        }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        if constexpr (form.halves) c1[r] = _mm512_mullo_epi32(c1[r], scale1);
        __m512i c = kTwo ? _mm512_add_epi32(c0[r], c1[r]) : c0[r];
        if constexpr (form.block == 256 && !form.halves) c = _mm512_mullo_epi32(c, scale0);
        P[r] = _mm512_cvtepi32_ps(c);
    }
}

// Rows first .. first + R - 1 of acts; y is the place of the first row's first output.
template <Type T, int R>
static void stream_tile(const uint8_t* quants, const uint8_t* scales, const ops::Acts& acts, int first, float* y, int stride, __mmask16 outputs) {
    constexpr TileForm form = tile_form(T);
    constexpr bool kSuper = form.block == 256;
    constexpr int kMinimums = form.halves ? 16 : 8;
    // Spread over the groups: a burst of a whole block stalls. Far ones into the second cache, since the first has too few line buffers for the
    // latency of memory: without them products and reading do not overlap (2 rows of IQ4_XS 20 instead of 30 GB/s, 6 rows of Q8_0 14 instead of 26).
    constexpr int kStep = (form.quant_bytes / (form.block / 32) + 63) / 64 * 64, kNear = 2048, kFar = 8192;
    const int columns = acts.columns;
    const __m512 zero = _mm512_setzero_ps();
    __m512 total[R], acc[R];
    for (int r = 0; r < R; r++) total[r] = acc[r] = zero;
    for (int at = 0; at < columns; at += kChunk) {
        const int groups = kSuper || columns - at >= kChunk ? kChunkGroups : (columns - at) / 32;
        alignas(64) int32_t minus_offset[R][form.halves ? 16 : 8];
        alignas(64) float d_sum[R][kMinimums];
        const int8_t* q[R];
        const float* d[R];
        __m512 f[R], P[R];
        for (int r = 0; r < R; r++) {
            const int place = (first + r) * (columns / 32) + at / 32;
            q[r] = acts.q + static_cast<size_t>(place) * 32, d[r] = acts.d + place;
            row_terms<form.halves, form.minimum>(d[r], acts.sum + 2 * static_cast<size_t>(place), groups, form.offset, minus_offset[r], d_sum[r]);
            f[r] = zero;
        }
        __asm__("" : : : "memory");  // gcc would keep d_sum in registers and spread it by shuffles, which share a pipe with the products
        for (int s = 0; s < groups; s++) {
            __m512i v[8];
#pragma GCC unroll 8
            for (int p = 0; p < kStep; p += 64) {
                _mm_prefetch(reinterpret_cast<const char*>(quants) + s * kStep + p + kNear, _MM_HINT_T0);
                _mm_prefetch(reinterpret_cast<const char*>(quants) + s * kStep + p + kFar, _MM_HINT_T1);
            }
            decode_group<T>(quants, s, v);
            __m512i scale0 = _mm512_setzero_si512(), scale1 = scale0;
            group_scales<T>(quants, s, scale0, scale1);
            dot32<T, R>(v, q, minus_offset, s, scale0, scale1, P);
            const __m512 dw = kSuper ? zero : block_scale<T>(scales + s * form.scale_bytes, 0);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const __m512 da = _mm512_set1_ps(d[r][s]);
                if constexpr (kSuper) f[r] = _mm512_fmadd_ps(da, P[r], f[r]);
                else acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(dw, da), P[r], acc[r]);
                if constexpr (!kSuper && form.minimum) acc[r] = _mm512_fmadd_ps(block_scale<T>(scales + s * form.scale_bytes, 1), _mm512_set1_ps(d_sum[r][s]), acc[r]);
            }
        }
        for (int r = 0; r < R && kSuper; r++) acc[r] = _mm512_fmadd_ps(block_scale<T>(scales, 0), f[r], acc[r]);
        if constexpr (kSuper && form.minimum) {
            for (int r = 0; r < R; r++) f[r] = zero;
#pragma GCC unroll 16
            for (int s = 0; s < kMinimums; s++) {
                __m512i m = unsigned16(quants + (form.halves ? form.scales_at() : form.minimums_at()) + 16 * s);
                if constexpr (form.halves) m = _mm512_srli_epi32(m, 4);  // Q2_K: the high nibbles of the scales' bytes
                const __m512 min = _mm512_cvtepi32_ps(m);
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) f[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(d_sum[r][s]), f[r]);
            }
            for (int r = 0; r < R; r++) acc[r] = _mm512_fnmadd_ps(block_scale<T>(scales, 1), f[r], acc[r]);
        }
        quants += (kSuper ? 1 : kChunkGroups) * form.quant_bytes, scales += (kSuper ? 1 : kChunkGroups) * form.scale_bytes;
        if ((at + kChunk) % ops::kSegment && at + kChunk < columns) continue;
        for (int r = 0; r < R; r++) total[r] = at < ops::kSegment ? acc[r] : _mm512_add_ps(total[r], acc[r]), acc[r] = zero;
    }
    for (int r = 0; r < R; r++) _mm512_mask_storeu_ps(y + static_cast<size_t>(r) * stride, outputs, total[r]);
}

}  // namespace lucebox::cpu::zmm
