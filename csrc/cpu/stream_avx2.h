// Up to four rows times half a tile in AVX2.
#pragma once
#include "cpu/tiles_avx2.h"

namespace lucebox::cpu::ymm {

inline constexpr int kBlockRows = 4, kChunk = 256, kChunkGroups = kChunk / 32;

// What a row brings to 32 columns beside its bytes: -offset * (sums of a lane's even and odd pairs) as two 16-bit numbers, for columns 0 .. 15
// and 16 .. 31 or (first only) for all.
template <Type T> LUCE_FN void offset_terms(const int8_t* q, int32_t* out) {
    constexpr TileForm form = tile_form(T);
    __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8(form.offset), load(q));
    s = _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0x4e));
    s = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0xb1)));
    const __m128i first = _mm256_castsi256_si128(s), second = _mm256_extracti128_si256(s, 1);
    out[0] = _mm_cvtsi128_si32(kTwoSums<T> ? first : _mm_add_epi16(first, second));
    out[1] = _mm_cvtsi128_si32(second);
}

template <bool kIsWide> LUCE_FN __m256i add_product(__m256i sum, __m256i w, __m256i size, __m256i a, __m256i scale) {
    if constexpr (kIsWide) return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_sign_epi8(a, w)), scale));
    else return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, a));
}

template <Type T, int R, int I>
LUCE_FN void add_pair(const uint8_t* quants, int s, int half, const int8_t* const (&q)[R], __m256i scale0, __m256i scale1, __m256i (&c0)[R], __m256i (&c1)[R]) {
    __m256i lo, hi;
    decode_pair<T, I>(quants, s, half, lo, hi);
    const __m256i size_lo = _mm256_abs_epi8(lo), size_hi = _mm256_abs_epi8(hi);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        c0[r] = add_product<kWide<T>>(c0[r], lo, size_lo, spread32(q[r] + 4 * I), scale0);
        __m256i& c = kTwoSums<T> ? c1[r] : c0[r];
        c = add_product<kWide<T>>(c, hi, size_hi, spread32(q[r] + 16 + 4 * I), scale1);
    }
}

// Rows first .. first + R - 1 of acts, outputs 8 half .. of the tile, into y[row * stride + output].
template <Type T, int R>
static void stream_half(const uint8_t* quants, const uint8_t* scales, int half, const ops::Acts& acts, int first, float* y, int stride, int outputs) {
    constexpr TileForm form = tile_form(T);
    constexpr bool kSuper = form.block == 256;
    constexpr int kStep = (form.quant_bytes / (form.block / 32) + 63) / 64 * 64, kNear = 2048, kFar = 8192;  // as in stream_avx512.h
    const int columns = acts.columns;
    const __m256 zero = _mm256_setzero_ps();
    __m256 total[R], acc[R], f[R], g[R];
    for (int r = 0; r < R; r++) total[r] = acc[r] = zero;
    for (int at = 0; at < columns; at += kChunk) {
        const int groups = kSuper || columns - at >= kChunk ? kChunkGroups : (columns - at) / 32;
        for (int r = 0; r < R; r++) f[r] = g[r] = zero;
        for (int s = 0; s < groups; s++) {
            for (int p = 0; p < kStep && half == 0; p += 64) {
                _mm_prefetch(reinterpret_cast<const char*>(quants) + s * kStep + p + kNear, _MM_HINT_T0);
                _mm_prefetch(reinterpret_cast<const char*>(quants) + s * kStep + p + kFar, _MM_HINT_T1);
            }
            const int8_t* q[R];
            __m256i c0[R], c1[R];
            for (int r = 0; r < R; r++) {
                q[r] = acts.q + static_cast<size_t>(first + r) * columns + at + 32 * s;
                int32_t terms[2] = {};
                if constexpr (!kWide<T> && form.offset != 0) offset_terms<T>(q[r], terms);
                c0[r] = _mm256_set1_epi32(terms[0]), c1[r] = _mm256_set1_epi32(terms[1]);
            }
            __m256i scale0, scale1;
            group_scales<T>(quants, s, half, scale0, scale1);
            add_pair<T, R, 0>(quants, s, half, q, scale0, scale1, c0, c1), add_pair<T, R, 1>(quants, s, half, q, scale0, scale1, c0, c1);
            add_pair<T, R, 2>(quants, s, half, q, scale0, scale1, c0, c1), add_pair<T, R, 3>(quants, s, half, q, scale0, scale1, c0, c1);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                if constexpr (!kWide<T>) c0[r] = _mm256_madd_epi16(c0[r], scale0);
                if constexpr (kTwoSums<T>) c0[r] = _mm256_add_epi32(c0[r], _mm256_madd_epi16(c1[r], scale1));
                const size_t place = (static_cast<size_t>(first + r) * columns + at) / 32 + s;
                const __m256 P = _mm256_cvtepi32_ps(c0[r]), da = _mm256_set1_ps(acts.d[place]);
                const float dr = acts.d[place];
                const int32_t* sum = acts.sum + 2 * place;
                if constexpr (kSuper) {
                    f[r] = _mm256_fmadd_ps(da, P, f[r]);
                    if constexpr (form.minimum && form.halves)
                        for (int h = 0; h < 2; h++) g[r] = _mm256_fmadd_ps(minimum<T>(quants, 2 * s + h, half), _mm256_set1_ps(dr * static_cast<float>(sum[h])), g[r]);
                    else if constexpr (form.minimum)
                        g[r] = _mm256_fmadd_ps(minimum<T>(quants, s, half), _mm256_set1_ps(dr * static_cast<float>(sum[0] + sum[1])), g[r]);
                } else {
                    const uint8_t* at_scale = scales + s * form.scale_bytes;
                    acc[r] = _mm256_fmadd_ps(_mm256_mul_ps(block_scale<T>(at_scale, half, 0), da), P, acc[r]);
                    if constexpr (form.minimum)
                        acc[r] = _mm256_fmadd_ps(block_scale<T>(at_scale, half, 1), _mm256_set1_ps(dr * static_cast<float>(sum[0] + sum[1])), acc[r]);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R && kSuper; r++) {
            acc[r] = _mm256_fmadd_ps(block_scale<T>(scales, half, 0), f[r], acc[r]);
            if constexpr (form.minimum) acc[r] = _mm256_fnmadd_ps(block_scale<T>(scales, half, 1), g[r], acc[r]);
        }
        quants += (kSuper ? 1 : kChunkGroups) * form.quant_bytes, scales += (kSuper ? 1 : kChunkGroups) * form.scale_bytes;
        if ((at + kChunk) % ops::kSegment && at + kChunk < columns) continue;
        for (int r = 0; r < R; r++) total[r] = at < ops::kSegment ? acc[r] : _mm256_add_ps(total[r], acc[r]), acc[r] = zero;
    }
    for (int r = 0; r < R; r++) {
        float out[8];
        _mm256_storeu_ps(out, total[r]);
        for (int l = 0; l < 8 && 8 * half + l < outputs; l++) y[static_cast<size_t>(r) * stride + 8 * half + l] = out[l];
    }
}

}  // namespace lucebox::cpu::ymm
