// ops/attention.h in AVX-512: the products of one tile.
#include "cpu/attention_simd.h"
#include "cpu/lanes_avx512.h"
#include "cpu/simd.h"

namespace lucebox::cpu::zmm {

namespace {

template <KvForm F> LUCE_FN __m512 float16(const uint8_t* tile, size_t index) {
    if constexpr (F == KvForm::F16) return halves16(tile + 2 * index);
    else return _mm512_loadu_ps(tile + 4 * index);
}
// scores

void scores_q8(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512 factor = _mm512_set1_ps(c.g.factor);
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    for (int half = 0; half < 2; half++) {
        __m512 acc[kMaxHeads];
        for (auto& a : acc) a = _mm512_setzero_ps();
        for (int b = 0; b < c.blocks; b++) {
            fetch(next, c.tile_bytes, half * c.blocks + b, 2 * c.blocks);
            __m512i k[8];
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) k[j] = _mm512_xor_si512(load(tile + ((8 * b + j) * kTile + 16 * half) * 4), sign);
            const __m512 dk = halves16(scales + 2 * (b * kTile + 16 * half));
            for (int h = 0; h < c.count; h++) {
                const int8_t* q = c.g.q + (c.first + h) * c.dims + 32 * b;
                __m512i dot = _mm512_set1_epi32(-128 * c.sum[h][b]);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) dot = _mm512_dpbusd_epi32(dot, k[j], spread32(q + 4 * j));
                const __m512 dq = _mm512_set1_ps(c.g.d[(c.first + h) * c.blocks + b]);
                acc[h] = _mm512_fmadd_ps(_mm512_mul_ps(dq, dk), _mm512_cvtepi32_ps(dot), acc[h]);
            }
        }
        for (int h = 0; h < c.count; h++) _mm512_storeu_ps(score[h] + 16 * half, _mm512_mul_ps(acc[h], factor));
    }
}

template <KvForm F, int H> void scores_float(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*score)[kTile]) {
    __m512 acc[H][2];
    for (auto& a : acc) a[0] = a[1] = _mm512_setzero_ps();
    const float* q = c.g.qg + static_cast<size_t>(c.first) * c.g.stride();
    for (int e = 0; e < c.dims; e++) {
        fetch(next, c.tile_bytes, e, c.dims);
        const __m512 k0 = float16<F>(tile, static_cast<size_t>(e) * kTile), k1 = float16<F>(tile, static_cast<size_t>(e) * kTile + 16);
        for (int h = 0; h < H; h++) {
            const __m512 qe = _mm512_set1_ps(q[static_cast<size_t>(h) * c.g.stride() + static_cast<size_t>(e)]);
            acc[h][0] = _mm512_fmadd_ps(qe, k0, acc[h][0]), acc[h][1] = _mm512_fmadd_ps(qe, k1, acc[h][1]);
        }
    }
    const __m512 factor = _mm512_set1_ps(c.g.factor);
    for (int h = 0; h < H; h++) {
        _mm512_storeu_ps(score[h], _mm512_mul_ps(acc[h][0], factor));
        _mm512_storeu_ps(score[h] + 16, _mm512_mul_ps(acc[h][1], factor));
    }
}

// values

// A head's weights for a block of 32 dimensions in 15 bits: their low bytes, then their high ones, in the order of the keys.
struct Weights {
    alignas(64) uint8_t low[kTile];
    uint8_t high[kTile];
};

// The largest of 32 lanes that are not negative, in all lanes; bits order like integers, NaN and Inf last.
LUCE_FN __m512i largest(__m512 x, __m512 y) {
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i m = _mm512_and_si512(_mm512_max_epu32(_mm512_castps_si512(x), _mm512_castps_si512(y)), size);
    m = _mm512_max_epu32(m, _mm512_shuffle_i32x4(m, m, 0x4e));
    m = _mm512_max_epu32(m, _mm512_shuffle_i32x4(m, m, 0xb1));
    m = _mm512_max_epu32(m, _mm512_shuffle_epi32(m, static_cast<_MM_PERM_ENUM>(0x4e)));
    return _mm512_max_epu32(m, _mm512_shuffle_epi32(m, static_cast<_MM_PERM_ENUM>(0xb1)));
}

// w = p * d_v; returns the step, 0 for weights too small to add anything. With 2^e <= max w < 2^(e + 1) step = 2^(e - 14).
LUCE_FN float quantize_weights(const float* p, __m512 d0, __m512 d1, __mmask16 m0, __mmask16 m1, __m512i order, Weights& out) {
    // Absent keys weigh +0 whatever their scale is.
    const __m512 w0 = _mm512_maskz_mul_ps(m0, _mm512_loadu_ps(p), d0), w1 = _mm512_maskz_mul_ps(m1, _mm512_loadu_ps(p + 16), d1);
    const __m512i top = largest(w0, w1), exponent = _mm512_and_si512(top, _mm512_set1_epi32(0x7f800000));
    const __m512 one_by_step = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32((127 + 127 + 14) << 23), exponent));
    const __m512i i0 = _mm512_cvtps_epi32(_mm512_mul_ps(w0, one_by_step)), i1 = _mm512_cvtps_epi32(_mm512_mul_ps(w1, one_by_step));
    _mm512_store_si512(out.low, _mm512_permutexvar_epi8(order, _mm512_packus_epi32(i0, i1)));
    const uint32_t bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(top)));
    return bits < 0x0d800000u ? 0.0f : bits < 0x7f800000u ? ops::from_bits((bits & 0x7f800000u) - (14u << 23)) : ops::quiet_nan();  // 2^-100
}

void add_values_q8(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int, int keys, Part* parts) {
    const uint32_t present = keys < kTile ? (1u << keys) - 1 : ~0u;
    const uint8_t* scales = tile + static_cast<size_t>(c.dims) * kTile;
    const __mmask16 m0 = static_cast<__mmask16>(present), m1 = static_cast<__mmask16>(present >> 16);
    alignas(64) uint8_t places[64];  // packus interleaves the two vectors four by four
    for (int i = 0; i < 32; i++) places[i] = static_cast<uint8_t>(2 * (i % 4 + i % 16 / 4 * 8 + i / 16 * 4)), places[32 + i] = static_cast<uint8_t>(places[i] + 1);
    const __m512i order = load(places);
    for (int b = 0; b < c.blocks; b++) {
        const __m512 d0 = halves16(scales + 2 * b * kTile), d1 = halves16(scales + 2 * (b * kTile + 16));
        fetch(next, c.tile_bytes, b, c.blocks);
        Weights weights[kMaxHeads];
        float step[kMaxHeads];
        for (int h = 0; h < c.count; h++) step[h] = quantize_weights(p[h], d0, d1, m0, m1, order, weights[h]);
        __m512i v[8][2];
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) v[j][0] = load(tile + (static_cast<size_t>(j) * c.dims + 32 * b) * 4), v[j][1] = load(tile + (static_cast<size_t>(j) * c.dims + 32 * b + 16) * 4);
        for (int h = 0; h < c.count; h++) {
            if (step[h] == 0) continue;
            __m512i low[2], high[2];
            low[0] = low[1] = high[0] = high[1] = _mm512_setzero_si512();
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                const __m512i l = spread32(weights[h].low + 4 * j), u = spread32(weights[h].high + 4 * j);
                for (int half = 0; half < 2; half++) low[half] = _mm512_dpbusd_epi32(low[half], l, v[j][half]), high[half] = _mm512_dpbusd_epi32(high[half], u, v[j][half]);
            }
            for (int half = 0; half < 2; half++) {
                float* o = parts[h].o + 32 * b + 16 * half;
                const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(low[half], _mm512_slli_epi32(high[half], 8)));
                _mm512_store_ps(o, _mm512_fmadd_ps(_mm512_set1_ps(step[h]), sum, _mm512_load_ps(o)));
            }
        }
    }
}

// 32 dimensions of H heads at a time, key by key.
template <KvForm F, int H>
void add_values_float(const Heads& c, const uint8_t* tile, const uint8_t* next, float (*p)[kTile], int from, int keys, Part* parts) {
    for (int e = 0; e < c.dims; e += 32) {
        __m512 o[H][2];
        for (int h = 0; h < H; h++) o[h][0] = _mm512_load_ps(parts[h].o + e), o[h][1] = _mm512_load_ps(parts[h].o + e + 16);
        for (int i = from; i < keys; i++) {
            fetch(next, c.tile_bytes, e / 32 * kTile + i, c.blocks * kTile);
            const size_t at = static_cast<size_t>(i) * c.dims + e;
            const __m512 v0 = float16<F>(tile, at), v1 = float16<F>(tile, at + 16);
            for (int h = 0; h < H; h++) {
                const __m512 w = _mm512_set1_ps(p[h][i]);
                o[h][0] = _mm512_fmadd_ps(w, v0, o[h][0]), o[h][1] = _mm512_fmadd_ps(w, v1, o[h][1]);
            }
        }
        for (int h = 0; h < H; h++) _mm512_store_ps(parts[h].o + e, o[h][0]), _mm512_store_ps(parts[h].o + e + 16, o[h][1]);
    }
}

template <KvForm F, int H> void attend_floats(const Heads& c) {
    attend_heads<Lanes>(
        c, [&c](auto... args) { scores_float<F, H>(c, args...); }, [&c](auto... args) { add_values_float<F, H>(c, args...); });
}

template <KvForm F> void attend_form(const AttendGroup& g) {
    by_heads(g, [](const Heads& c) {
        if constexpr (F == KvForm::Q8_0)
            return attend_heads<Lanes>(
                c, [&c](auto... args) { scores_q8(c, args...); }, [&c](auto... args) { add_values_q8(c, args...); });
        else
            switch (c.count) {
                case 1: return attend_floats<F, 1>(c);
                case 2: return attend_floats<F, 2>(c);
                case 3: return attend_floats<F, 3>(c);
                case 4: return attend_floats<F, 4>(c);
                case 5: return attend_floats<F, 5>(c);
                case 6: return attend_floats<F, 6>(c);
                case 7: return attend_floats<F, 7>(c);
                default: return attend_floats<F, 8>(c);
            }
    });
}

}  // namespace

void rotate(float* x, const float* cos, const float* sin, int half) { rotate_pairs(x, cos, sin, half); }

void store_kv(const KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key) {
    if (layout.form != KvForm::Q8_0) return store_floats(layout, tile, x, key, is_key);
    int8_t q[kMaxDim];
    float d[kMaxDim / 32];
    int32_t sum[kMaxDim / 16];
    quantize_row(x, layout.head_dim, q, d, sum);
    store_q8(layout, tile, q, d, key, is_key);
}

void attend(const AttendGroup& g) {
    switch (g.layout.form) {
        case KvForm::Q8_0: return attend_form<KvForm::Q8_0>(g);
        case KvForm::F16: return attend_form<KvForm::F16>(g);
        case KvForm::F32: return attend_form<KvForm::F32>(g);
    }
}

}  // namespace lucebox::cpu::zmm
