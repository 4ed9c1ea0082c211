// ops/matmul.h in AVX-512 with VNNI: lanes are outputs of a tile (cpu/tiles.h); F32, F16 and BF16: lanes are columns, from the file's layout.
#include "cpu/simd.h"
#include "cpu/stream_avx512.h"

namespace lucebox::cpu::zmm {

namespace {

constexpr int kRowBytes = 512 * 1024;  // of activations that stay in the second cache beside a tile

struct Job {
    const ops::Weight& w;
    const ops::Acts& acts;
    int rows, first, last;
    float* y;
    int stride;

    int tiles_from() const { return first / kLanes; }
    int tiles_to() const { return (last + kLanes - 1) / kLanes; }
    __mmask16 outputs(int tile) const { return last - tile * kLanes < kLanes ? static_cast<__mmask16>((1u << (last - tile * kLanes)) - 1) : 0xffff; }
    float* at(int row, int tile) const { return y + static_cast<size_t>(row) * stride + tile * kLanes - first; }
};

template <Type T> struct Tiles {
    static constexpr TileForm form = tile_form(T);
    const uint8_t *quants, *scales;
    size_t blocks;

    explicit Tiles(const ops::Weight& w) : quants(w.packed), blocks(static_cast<size_t>(w.columns / form.block)) {
        scales = quants + (static_cast<size_t>(w.rows) + kLanes - 1) / kLanes * blocks * form.quant_bytes;
    }
    size_t block(int tile, int group) const { return static_cast<size_t>(tile) * blocks + static_cast<size_t>(group / (form.block / 32)); }
};

template <Type T> void one_block(const Job& job, const Tiles<T>& tiles, int t, int row, int rows) {
    const auto run = [&](auto tile) {
        tile(tiles.quants + tiles.block(t, 0) * tiles.form.quant_bytes, tiles.scales + tiles.block(t, 0) * tiles.form.scale_bytes, job.acts, row,
             job.at(row, t), job.stride, job.outputs(t));
    };
    switch (rows) {
        case 1: return run(stream_tile<T, 1>);
        case 2: return run(stream_tile<T, 2>);
        case 3: return run(stream_tile<T, 3>);
        case 4: return run(stream_tile<T, 4>);
        case 5: return run(stream_tile<T, 5>);
        case 6: return run(stream_tile<T, 6>);
        case 7: return run(stream_tile<T, 7>);
        default: return run(stream_tile<T, 8>);
    }
}

// Eight rows at a time; a tile is read again for the next eight, from the second cache.
template <Type T> void packed(const Job& job) {
    const Tiles<T> tiles(job.w);
    const int fit = kRowBytes / (job.w.columns / 2 * 3) / kBlockRows * kBlockRows, chunk = fit < kBlockRows ? kBlockRows : fit;
    for (int from = 0; from < job.rows; from += chunk) {
        const int to = job.rows - from < chunk ? job.rows : from + chunk;
        for (int t = job.tiles_from(); t < job.tiles_to(); t++)
            for (int row = from; row < to; row += kBlockRows) one_block(job, tiles, t, row, to - row);
    }
}

// F32, F16, BF16: the unrounded rows by lane_sum, four rows and two outputs at a time.
template <Type T> LUCE_FN __m512 float16(const uint8_t* row, int i) {
    if constexpr (T == Type::F32) return _mm512_loadu_ps(row + 4 * i);
    else if constexpr (T == Type::F16) return halves16(row + 2 * i);
    else return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * i))), 16));
}

// C outputs from w on times R rows from x on; y is the place of the first of both.
template <Type T, int R, int C> void float_block(const uint8_t* w, const float* x, int columns, float* y, int stride) {
    constexpr size_t kBytes = T == Type::F32 ? 4 : 2;
    float total[R][C] = {};
    for (int s = 0; s < columns; s += ops::kSegment) {
        __m512 lane[R][C][2];
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) lane[r][c][0] = lane[r][c][1] = _mm512_setzero_ps();
        for (int i = s; i < columns && i < s + ops::kSegment; i += 32) {
            __m512 w0[C], w1[C];
            for (int c = 0; c < C; c++) {
                const uint8_t* row = w + static_cast<size_t>(c) * columns * kBytes;
                w0[c] = float16<T>(row, i), w1[c] = float16<T>(row, i + 16);
                for (size_t p = 0; p < 32 * kBytes; p += 64) _mm_prefetch(reinterpret_cast<const char*>(row) + i * kBytes + p + 8192, _MM_HINT_T1);
            }
            for (int r = 0; r < R; r++) {
                const float* at = x + static_cast<size_t>(r) * columns + i;
                const __m512 x0 = _mm512_loadu_ps(at), x1 = _mm512_loadu_ps(at + 16);
                for (int c = 0; c < C; c++) lane[r][c][0] = _mm512_fmadd_ps(w0[c], x0, lane[r][c][0]), lane[r][c][1] = _mm512_fmadd_ps(w1[c], x1, lane[r][c][1]);
            }
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) total[r][c] = s ? total[r][c] + Lanes::tree32(lane[r][c]) : Lanes::tree32(lane[r][c]);
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) y[static_cast<size_t>(r) * stride + c] = total[r][c];
}

template <Type T, int C> void float_outputs(const Job& job, int n) {
    const size_t columns = static_cast<size_t>(job.w.columns);
    const uint8_t* w = job.w.data + static_cast<size_t>(n) * columns * (T == Type::F32 ? 4 : 2);
    for (int r = 0; r < job.rows;) {
        const float* x = job.acts.x + static_cast<size_t>(r) * columns;
        float* y = job.y + static_cast<size_t>(r) * job.stride + n - job.first;
        if (job.rows - r >= 4) float_block<T, 4, C>(w, x, job.w.columns, y, job.stride), r += 4;
        else float_block<T, 1, C>(w, x, job.w.columns, y, job.stride), r++;
    }
}

template <Type T> void floats(const Job& job) {
    int n = job.first;
    for (; n + 2 <= job.last; n += 2) float_outputs<T, 2>(job, n);
    if (n < job.last) float_outputs<T, 1>(job, n);
}

}  // namespace

void matmul(const ops::Weight& w, const ops::Acts& acts, int rows, int first, int last, float* y, int stride) {
    const Job job{w, acts, rows, first, last, y, stride};
    switch (w.type) {
        case Type::Q4_0: return packed<Type::Q4_0>(job);
        case Type::Q4_1: return packed<Type::Q4_1>(job);
        case Type::Q5_0: return packed<Type::Q5_0>(job);
        case Type::Q5_1: return packed<Type::Q5_1>(job);
        case Type::Q8_0: return packed<Type::Q8_0>(job);
        case Type::IQ4_NL: return packed<Type::IQ4_NL>(job);
        case Type::MXFP4: return packed<Type::MXFP4>(job);
        case Type::IQ4_XS: return packed<Type::IQ4_XS>(job);
        case Type::Q2_K: return packed<Type::Q2_K>(job);
        case Type::Q3_K: return packed<Type::Q3_K>(job);
        case Type::Q4_K: return packed<Type::Q4_K>(job);
        case Type::Q5_K: return packed<Type::Q5_K>(job);
        case Type::Q6_K: return packed<Type::Q6_K>(job);
        case Type::IQ1_S: return packed<Type::IQ1_S>(job);
        case Type::IQ1_M: return packed<Type::IQ1_M>(job);
        case Type::IQ2_XXS: return packed<Type::IQ2_XXS>(job);
        case Type::IQ2_XS: return packed<Type::IQ2_XS>(job);
        case Type::IQ2_S: return packed<Type::IQ2_S>(job);
        case Type::IQ3_XXS: return packed<Type::IQ3_XXS>(job);
        case Type::IQ3_S: return packed<Type::IQ3_S>(job);
        case Type::F32: return floats<Type::F32>(job);
        case Type::F16: return floats<Type::F16>(job);
        case Type::BF16: return floats<Type::BF16>(job);
        default: return;  // no type of a matrix
    }
}

}  // namespace lucebox::cpu::zmm
