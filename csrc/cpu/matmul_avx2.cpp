// ops/matmul.h in AVX2: lanes are outputs of a tile (cpu/tiles.h); F32, F16 and BF16: lanes are columns, from the file's layout.
#include "cpu/simd.h"
#include "cpu/stream_avx2.h"

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

}  // namespace lucebox::cpu::ymm
