// Many rows times one tile: a segment of 1,024 columns is decoded once into the first cache and read by eight rows at a time.
#pragma once
#include "cpu/tiles_avx512.h"

namespace lucebox::cpu::zmm {

inline constexpr int kSegmentGroups = ops::kSegment / 32, kBlockRows = 8;

// What the products depend on beside the bytes. sums: minimums are per 16 (Q2_K) or per 32.
struct Product {
    int block;
    bool halves, minimum, minimum_halves;
};
template <Type T> inline constexpr Product kProduct = {tile_form(T).block, tile_form(T).halves, tile_form(T).minimum, false};
inline constexpr Product kFileProduct = {256, true, false, false}, kQ2Product = {256, true, true, true};

// A tile's segment: weights as unsigned bytes.
struct alignas(64) Segment {
    uint8_t v[kSegmentGroups][8][64];
    int8_t scale[2 * kSegmentGroups][kLanes];  // per 16 or 32 columns
    uint8_t min[2 * kSegmentGroups][kLanes];
    float d[kSegmentGroups][kLanes];           // per block
    float dmin[kSegmentGroups][kLanes];
    int groups;
};

// Eight rows of a segment, rows innermost, so that a kernel's addresses are one pointer and constants.
struct alignas(64) RowBlock {
    int8_t q[kSegmentGroups][kBlockRows][32];
    float d[kSegmentGroups][kBlockRows];
    int32_t minus_offset[2 * kSegmentGroups][kBlockRows];  // - offset * sum, per 16 or 32
    float d_sum[2 * kSegmentGroups][kBlockRows];           // d * sum, what minimums multiply
};

template <Type T> static void decode_segment(const uint8_t* quants, const uint8_t* scales, int groups, size_t ahead, Segment& out) {
    constexpr TileForm form = tile_form(T);
    constexpr int kGroups = form.block / 32, kScales = form.halves ? 16 : 8;
    out.groups = groups;
    for (int b = 0; b < groups / kGroups; b++, quants += form.quant_bytes, scales += form.scale_bytes) {
        for (int s = 0; s < kGroups; s++) {
            __m512i v[8];
            for (int p = 0; p < form.group_bytes; p += 64) _mm_prefetch(reinterpret_cast<const char*>(quants) + s * form.group_bytes + p + ahead, _MM_HINT_T0);
            decode_group<T>(quants + s * form.group_bytes, v);
            for (int i = 0; i < 8; i++) _mm512_store_si512(out.v[b * kGroups + s][i], v[i]);
        }
        if constexpr (kGroups == 8) {
            memcpy(out.scale[b * kScales], quants + 8 * form.group_bytes, kScales * kLanes);
            if constexpr (form.minimum) memcpy(out.min[b * kScales], quants + 8 * form.group_bytes + 128, 8 * kLanes);
        }
        _mm512_store_ps(out.d[b], block_scale<T>(scales, 0));
        if constexpr (form.minimum) _mm512_store_ps(out.dmin[b], block_scale<T>(scales, 1));
    }
}

// Rows 0 .. R - 1 of the block; y starts at the tile's first output.
template <Product P, int R> static void multiply(const Segment& w, const RowBlock& x, bool first, float* y, int stride, __mmask16 outputs) {
    constexpr int kGroups = P.block / 32, kScales = P.halves ? 2 : 1, kMins = P.minimum_halves ? 2 : 1;
    __m512 acc[R];
    for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    for (int b = 0; b < w.groups / kGroups; b++) {
        const __m512 dw = _mm512_load_ps(w.d[b]);
        __m512 f[R];
        for (int r = 0; r < R; r++) f[r] = _mm512_setzero_ps();
        for (int s = b * kGroups; s < (b + 1) * kGroups; s++) {
            __m512i v[8], c[R];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) v[i] = _mm512_load_si512(w.v[s][i]);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                c[r] = _mm512_set1_epi32(x.minus_offset[kScales * s][r]);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) c[r] = _mm512_dpbusd_epi32(c[r], v[j], spread32(x.q[s][r] + 4 * j));
                __m512i second = c[r];
                if constexpr (P.halves) second = _mm512_set1_epi32(x.minus_offset[kScales * s + 1][r]);
#pragma GCC unroll 4
                for (int j = 4; j < 8; j++) second = _mm512_dpbusd_epi32(second, v[j], spread32(x.q[s][r] + 4 * j));
                if constexpr (P.halves) {
                    c[r] = _mm512_mullo_epi32(c[r], signed16(reinterpret_cast<const uint8_t*>(w.scale[2 * s])));
                    c[r] = _mm512_add_epi32(c[r], _mm512_mullo_epi32(second, signed16(reinterpret_cast<const uint8_t*>(w.scale[2 * s + 1]))));
                } else if constexpr (kGroups == 8) {
                    c[r] = _mm512_mullo_epi32(second, signed16(reinterpret_cast<const uint8_t*>(w.scale[s])));
                } else {
                    c[r] = second;
                }
                const __m512 d = _mm512_set1_ps(x.d[s][r]);
                if constexpr (kGroups == 8) f[r] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(c[r]), f[r]);
                else acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(dw, d), _mm512_cvtepi32_ps(c[r]), acc[r]);
            }
        }
        const __m512 dmin = _mm512_load_ps(w.dmin[b]);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            if constexpr (kGroups == 8) acc[r] = _mm512_fmadd_ps(dw, f[r], acc[r]);
            if constexpr (kGroups == 8 && P.minimum) {
                __m512 g = _mm512_setzero_ps();
                for (int s = b * 8 * kMins; s < (b + 1) * 8 * kMins; s++)
                    g = _mm512_fmadd_ps(_mm512_cvtepi32_ps(unsigned16(w.min[s])), _mm512_set1_ps(x.d_sum[s][r]), g);
                acc[r] = _mm512_fnmadd_ps(dmin, g, acc[r]);
            }
            if constexpr (kGroups == 1 && P.minimum) acc[r] = _mm512_fmadd_ps(dmin, _mm512_set1_ps(x.d_sum[b][r]), acc[r]);
        }
    }
    for (int r = 0; r < R; r++) {
        float* out = y + static_cast<size_t>(r) * stride;
        if (!first) acc[r] = _mm512_add_ps(_mm512_maskz_loadu_ps(outputs, out), acc[r]);
        _mm512_mask_storeu_ps(out, outputs, acc[r]);
    }
}

template <Product P> static void multiply(const Segment& w, const RowBlock& x, int rows, bool first, float* y, int stride, __mmask16 outputs) {
    switch (rows) {
        case 1: return multiply<P, 1>(w, x, first, y, stride, outputs);
        case 2: return multiply<P, 2>(w, x, first, y, stride, outputs);
        case 3: return multiply<P, 3>(w, x, first, y, stride, outputs);
        case 4: return multiply<P, 4>(w, x, first, y, stride, outputs);
        case 5: return multiply<P, 5>(w, x, first, y, stride, outputs);
        case 6: return multiply<P, 6>(w, x, first, y, stride, outputs);
        case 7: return multiply<P, 7>(w, x, first, y, stride, outputs);
        default: return multiply<P, 8>(w, x, first, y, stride, outputs);
    }
}

// Rows first .. first + rows - 1 (up to eight) of a segment that starts at group `at`.
static void gather_rows(const ops::Acts& acts, int first, int rows, int at, int groups, int offset, Product p, RowBlock& out) {
    for (int r = 0; r < rows; r++) {
        const size_t group = static_cast<size_t>(first + r) * (acts.columns / 32) + at;
        const int8_t* q = acts.q + 32 * group;
        const float* d = acts.d + group;
        const int32_t* sum = acts.sum + 2 * group;
        for (int g = 0; g < groups; g++) {
            memcpy(out.q[g][r], q + 32 * g, 32);
            out.d[g][r] = d[g];
            const int both = sum[2 * g] + sum[2 * g + 1];
            if (p.halves) out.minus_offset[2 * g][r] = -offset * sum[2 * g], out.minus_offset[2 * g + 1][r] = -offset * sum[2 * g + 1];
            else out.minus_offset[g][r] = -offset * both;
            if (p.minimum_halves) out.d_sum[2 * g][r] = d[g] * static_cast<float>(sum[2 * g]), out.d_sum[2 * g + 1][r] = d[g] * static_cast<float>(sum[2 * g + 1]);
            else if (p.minimum) out.d_sum[g][r] = d[g] * static_cast<float>(both);
        }
    }
}

}  // namespace lucebox::cpu::zmm
