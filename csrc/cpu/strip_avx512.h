// The products of a strip (cpu/strip.h) with eight rows at a time.
#pragma once
#include "cpu/stream_avx512.h"
#include "cpu/strip.h"

namespace lucebox::cpu::zmm {

// Eight rows of a strip at fixed distances, so that a kernel's addresses are one pointer and constants.
struct alignas(64) RowBlock {
    int8_t q[kBlockRows][kStripGroups * 32];
    float d[kBlockRows][kStripGroups];
    int32_t minus_offset[kBlockRows][2 * kStripGroups];  // -128 * sum of 16
    float d_sum[kBlockRows][2 * kStripGroups];           // d * sum of 16, for minimums
};

// acc [R][kLanes] goes on with R rows of the block. kMinimum: Q2_K, per 16 columns.
template <bool kMinimum, int R> static void multiply(const Strip& w, int groups, const RowBlock& x, float (*out)[kLanes]) {
    for (int b = 0; b < groups / 8; b++) {
        __m512 f[R];
        for (int r = 0; r < R; r++) f[r] = _mm512_setzero_ps();
        for (int s = 8 * b; s < 8 * b + 8; s++) {
            __m512i c[R], first[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) c[r] = _mm512_set1_epi32(x.minus_offset[r][2 * s]);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                const __m512i v = _mm512_load_si512(w.v[s][j]);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) {
                    if (j == 4) first[r] = _mm512_mullo_epi32(c[r], signed16(w.scale[2 * s])), c[r] = _mm512_set1_epi32(x.minus_offset[r][2 * s + 1]);
                    c[r] = _mm512_dpbusd_epi32(c[r], v, spread32(x.q[r] + 32 * s + 4 * j));
                }
            }
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                c[r] = _mm512_add_epi32(first[r], _mm512_mullo_epi32(c[r], signed16(w.scale[2 * s + 1])));
                f[r] = _mm512_fmadd_ps(_mm512_set1_ps(x.d[r][s]), _mm512_cvtepi32_ps(c[r]), f[r]);
            }
        }
        for (int r = 0; r < R; r++) _mm512_store_ps(out[r], _mm512_fmadd_ps(_mm512_load_ps(w.d[b]), f[r], _mm512_load_ps(out[r])));
        if constexpr (!kMinimum) continue;
        for (int r = 0; r < R; r++) f[r] = _mm512_setzero_ps();
        for (int h = 16 * b; h < 16 * b + 16; h++) {
            const __m512 min = _mm512_cvtepi32_ps(unsigned16(w.min[h]));
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) f[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(x.d_sum[r][h]), f[r]);
        }
        for (int r = 0; r < R; r++) _mm512_store_ps(out[r], _mm512_fnmadd_ps(_mm512_load_ps(w.dmin[b]), f[r], _mm512_load_ps(out[r])));
    }
}

template <bool kMinimum> static void multiply(const Strip& w, int groups, const RowBlock& x, int rows, float (*acc)[kLanes]) {
    switch (rows) {
        case 1: return multiply<kMinimum, 1>(w, groups, x, acc);
        case 2: return multiply<kMinimum, 2>(w, groups, x, acc);
        case 3: return multiply<kMinimum, 3>(w, groups, x, acc);
        case 4: return multiply<kMinimum, 4>(w, groups, x, acc);
        case 5: return multiply<kMinimum, 5>(w, groups, x, acc);
        case 6: return multiply<kMinimum, 6>(w, groups, x, acc);
        case 7: return multiply<kMinimum, 7>(w, groups, x, acc);
        default: return multiply<kMinimum, 8>(w, groups, x, acc);
    }
}

// Rows first .. first + rows - 1 (up to eight) of a strip that starts at group `at`.
LUCE_FN void gather_rows(const ops::Acts& acts, int first, int rows, int at, int groups, RowBlock& out) {
    for (int r = 0; r < rows; r++) {
        const size_t group = static_cast<size_t>(first + r) * (acts.columns / 32) + at;
        const int32_t* sum = acts.sum + 2 * group;
        memcpy(out.q[r], acts.q + 32 * group, 32 * groups);
        memcpy(out.d[r], acts.d + group, sizeof(float) * groups);
        for (int h = 0; h < 2 * groups; h++) out.minus_offset[r][h] = -128 * sum[h], out.d_sum[r][h] = out.d[r][h / 2] * static_cast<float>(sum[h]);
    }
}

}  // namespace lucebox::cpu::zmm
