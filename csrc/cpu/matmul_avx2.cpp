// ops/matmul.h in AVX2: lanes are outputs of a tile (cpu/tiles.h); F32, F16 and BF16: lanes are columns, from the file's layout.
#include "cpu/simd.h"
#include "cpu/stream_avx2.h"
#include "cpu/strip.h"

namespace lucebox::cpu::ymm {

namespace {

constexpr int kRowBytes = 256 * 1024;  // of activations that stay in the second cache beside a tile

struct Job {
    const ops::Weight& w;
    const ops::Acts& acts;
    int rows, first, last;
    float* y;
    int stride;

    int tiles_from() const { return first / kLanes; }
    int tiles_to() const { return (last + kLanes - 1) / kLanes; }
    int outputs(int tile) const { return last - tile * kLanes < kLanes ? last - tile * kLanes : kLanes; }
    float* at(int row, int tile) const { return y + static_cast<size_t>(row) * stride + tile * kLanes - first; }
};

template <Type T> void one_block(const Job& job, int t, int row, int rows) {
    constexpr TileForm form = tile_form(T);
    const size_t blocks = static_cast<size_t>(job.w.columns / form.block), tiles = (static_cast<size_t>(job.w.rows) + kLanes - 1) / kLanes;
    const uint8_t* quants = job.w.packed + static_cast<size_t>(t) * blocks * form.quant_bytes;
    const uint8_t* scales = job.w.packed + tiles * blocks * form.quant_bytes + static_cast<size_t>(t) * blocks * form.scale_bytes;
    for (int half = 0; half < 2; half++) {
        const auto run = [&](auto kernel) { kernel(quants, scales, half, job.acts, row, job.at(row, t), job.stride, job.outputs(t)); };
        switch (rows) {
            case 1: run(stream_half<T, 1>); break;
            case 2: run(stream_half<T, 2>); break;
            case 3: run(stream_half<T, 3>); break;
            default: run(stream_half<T, 4>); break;
        }
    }
}

// Four rows at a time; a tile is read again for the next four, from the second cache.
template <Type T> void packed(const Job& job) {
    const int fit = kRowBytes / (job.w.columns / 2 * 3) / kBlockRows * kBlockRows, chunk = fit < kBlockRows ? kBlockRows : fit;
    for (int from = 0; from < job.rows; from += chunk) {
        const int to = job.rows - from < chunk ? job.rows : from + chunk;
        for (int t = job.tiles_from(); t < job.tiles_to(); t++)
            for (int row = from; row < to; row += kBlockRows) one_block<T>(job, t, row, to - row);
    }
}

// Types without tiles: groups `at` .. of one row times half a strip; acc [16] goes on. kMinimum: Q2_K, per 16 columns.
template <bool kMinimum> void multiply(const Strip& w, int half, const ops::Acts& acts, int row, int at, int groups, float* out) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    __m256 acc = _mm256_loadu_ps(out + 8 * half);
    for (int b = 0; b < groups / 8; b++) {
        __m256 f = _mm256_setzero_ps(), g = f;
        for (int s = 8 * b; s < 8 * b + 8; s++) {
            const size_t group = static_cast<size_t>(row) * acts.columns / 32 + at + s;
            const int8_t* q = acts.q + 32 * group;
            __m256i c = _mm256_setzero_si256();
            for (int h = 0; h < 2; h++) {
                const __m256i scale = scale_pairs(w.scale[2 * s + h] + 8 * half);
#pragma GCC unroll 4
                for (int j = 4 * h; j < 4 * h + 4; j++) {
                    const __m256i v = _mm256_xor_si256(load(w.v[s][j] + 32 * half), sign);
                    c = add_product<true>(c, v, _mm256_abs_epi8(v), spread32(q + 4 * j), scale);
                }
                if constexpr (kMinimum)
                    g = _mm256_fmadd_ps(minimums(w.min[2 * s + h] + 8 * half), _mm256_set1_ps(acts.d[group] * static_cast<float>(acts.sum[2 * group + h])), g);
            }
            f = _mm256_fmadd_ps(_mm256_set1_ps(acts.d[group]), _mm256_cvtepi32_ps(c), f);
        }
        acc = _mm256_fmadd_ps(_mm256_loadu_ps(w.d[b] + 8 * half), f, acc);
        if constexpr (kMinimum) acc = _mm256_fnmadd_ps(_mm256_loadu_ps(w.dmin[b] + 8 * half), g, acc);
    }
    _mm256_storeu_ps(out + 8 * half, acc);
}

template <bool kMinimum> void from_file(const Job& job) {
    constexpr int kGroups = ops::kSegment / 32;
    const int all_groups = job.w.columns / 32;
    Strip w;
    for (int t = job.tiles_from(); t < job.tiles_to(); t++)
        for (int row = 0; row < job.rows; row += kStripRows) {
            const int rows = job.rows - row < kStripRows ? job.rows - row : kStripRows;
            for (int at = 0; at < all_groups; at += kGroups) {
                float acc[kStripRows][kLanes] = {};
                for (int g = at; g < all_groups && g < at + kGroups; g += kStripGroups) {
                    const int groups = all_groups - g < kStripGroups ? all_groups - g : kStripGroups;
                    decode_strip(job.w, t, g, groups, w);
                    for (int r = 0; r < rows; r++)
                        for (int half = 0; half < 2; half++) multiply<kMinimum>(w, half, job.acts, row + r, g, groups, acc[r]);
                }
                for (int r = 0; r < rows; r++)
                    for (int l = 0; l < job.outputs(t); l++) {
                        float& y = job.at(row + r, t)[l];
                        y = at == 0 ? acc[r][l] : y + acc[r][l];
                    }
            }
        }
}

// F32, F16, BF16: the unrounded rows by lane_sum, two rows for one reading of a weight.
template <Type T> LUCE_FN __m256 float8(const uint8_t* row, int i) {
    if constexpr (T == Type::F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(row + 4 * i));
    else if constexpr (T == Type::F16) return halves8(row + 2 * i);
    else return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * i))), 16));
}

template <Type T, int R> void float_rows(const uint8_t* w, const float* x, int columns, float* y, int stride) {
    float total[R] = {};
    for (int s = 0; s < columns; s += ops::kSegment) {
        __m256 a[R][4];
        for (auto& row : a)
            for (auto& lane : row) lane = _mm256_setzero_ps();
        for (int i = s; i < columns && i < s + ops::kSegment; i += 32)
            for (int l = 0; l < 4; l++) {
                const __m256 v = float8<T>(w, i + 8 * l);
                for (int r = 0; r < R; r++) a[r][l] = _mm256_fmadd_ps(v, _mm256_loadu_ps(x + static_cast<size_t>(r) * columns + i + 8 * l), a[r][l]);
            }
        for (int r = 0; r < R; r++) {
            const float sum = Lanes::tree32(a[r]);
            total[r] = s ? total[r] + sum : sum;
        }
    }
    for (int r = 0; r < R; r++) y[static_cast<size_t>(r) * stride] = total[r];
}

template <Type T> void floats(const Job& job) {
    constexpr int kPart = 2;
    const size_t columns = static_cast<size_t>(job.w.columns);
    for (int n = job.first; n < job.last; n++) {
        const uint8_t* w = job.w.data + static_cast<size_t>(n) * columns * (T == Type::F32 ? 4 : 2);
        float* y = job.y + n - job.first;
        int r = 0;
        for (; r + kPart <= job.rows; r += kPart) float_rows<T, kPart>(w, job.acts.x + r * columns, job.w.columns, y + static_cast<size_t>(r) * job.stride, job.stride);
        for (; r < job.rows; r++) float_rows<T, 1>(w, job.acts.x + r * columns, job.w.columns, y + static_cast<size_t>(r) * job.stride, job.stride);
    }
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
        case Type::Q4_K: return packed<Type::Q4_K>(job);
        case Type::Q5_K: return packed<Type::Q5_K>(job);
        case Type::Q6_K: return packed<Type::Q6_K>(job);
        case Type::IQ3_S: return packed<Type::IQ3_S>(job);
        case Type::F32: return floats<Type::F32>(job);
        case Type::F16: return floats<Type::F16>(job);
        case Type::BF16: return floats<Type::BF16>(job);
        case Type::Q2_K: return from_file<true>(job);
        default: return from_file<false>(job);
    }
}

}  // namespace lucebox::cpu::ymm
