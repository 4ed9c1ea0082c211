// ops/matmul.h in AVX-512 with VNNI: lanes are outputs of a tile (cpu/tiles.h); F32, F16 and BF16: lanes are columns, from the file's layout.
#include "cpu/lanes_avx512.h"
#include "cpu/segment_avx512.h"
#include "cpu/simd.h"
#include "cpu/stream_avx512.h"
#include "quants/quants.h"

namespace lucebox::cpu::zmm {

namespace {

constexpr int kStreamRows = 4;                // up to here a tile is multiplied while it is read
constexpr int kChunk = 64 / kBlockRows;       // row blocks that share a decoded segment

struct Job {
    const ops::Weight& w;
    const ops::Acts& acts;
    int rows, first, last;
    float* y;
    int stride;

    int tiles_from() const { return first / kLanes; }
    int tiles_to() const { return (last + kLanes - 1) / kLanes; }
    __mmask16 outputs(int tile) const { return last - tile * kLanes < kLanes ? static_cast<__mmask16>((1u << (last - tile * kLanes)) - 1) : 0xffff; }
};

template <Type T> void stream(const Job& job) {
    constexpr TileForm form = tile_form(T);
    const size_t blocks = static_cast<size_t>(job.w.columns / form.block), tiles = (static_cast<size_t>(job.w.rows) + kLanes - 1) / kLanes;
    const uint8_t* all_scales = job.w.packed + tiles * blocks * form.quant_bytes;
    const Rows x{job.acts.q, job.acts.d, job.acts.sum, job.w.columns};
    for (int t = job.tiles_from(); t < job.tiles_to(); t++) {
        const uint8_t* quants = job.w.packed + static_cast<size_t>(t) * blocks * form.quant_bytes;
        const uint8_t* scales = all_scales + static_cast<size_t>(t) * blocks * form.scale_bytes;
        float* y = job.y + t * kLanes - job.first;
        switch (job.rows) {
            case 1: stream_tile<T, 1>(quants, scales, x, y, job.stride, job.outputs(t)); break;
            case 2: stream_tile<T, 2>(quants, scales, x, y, job.stride, job.outputs(t)); break;
            case 3: stream_tile<T, 3>(quants, scales, x, y, job.stride, job.outputs(t)); break;
            default: stream_tile<T, 4>(quants, scales, x, y, job.stride, job.outputs(t)); break;
        }
    }
}

// Segment by segment: rows are gathered once, then every tile of the job is decoded (decode(tile, first group, groups, out)) and multiplied.
template <Product P, class Decode> void by_segments(const Job& job, int offset, const Decode& decode) {
    RowBlock x[kChunk];
    Segment w;
    const int all_groups = job.w.columns / 32;
    for (int row = 0; row < job.rows; row += kChunk * kBlockRows) {
        const int rows = job.rows - row < kChunk * kBlockRows ? job.rows - row : kChunk * kBlockRows;
        for (int at = 0; at < all_groups; at += kSegmentGroups) {
            const int groups = all_groups - at < kSegmentGroups ? all_groups - at : kSegmentGroups;
            for (int r = 0; r < rows; r += kBlockRows)
                gather_rows(job.acts, row + r, rows - r < kBlockRows ? rows - r : kBlockRows, at, groups, offset, P, x[r / kBlockRows]);
            for (int t = job.tiles_from(); t < job.tiles_to(); t++) {
                decode(t, at, groups, w);
                float* y = job.y + static_cast<size_t>(row) * job.stride + t * kLanes - job.first;
                for (int r = 0; r < rows; r += kBlockRows)
                    multiply<P>(w, x[r / kBlockRows], rows - r < kBlockRows ? rows - r : kBlockRows, at == 0, y + static_cast<size_t>(r) * job.stride, job.stride,
                                job.outputs(t));
            }
        }
    }
}

template <Type T> void packed(const Job& job) {
    if (job.rows <= kStreamRows) return stream<T>(job);
    constexpr TileForm form = tile_form(T);
    const size_t blocks = static_cast<size_t>(job.w.columns / form.block), tiles = (static_cast<size_t>(job.w.rows) + kLanes - 1) / kLanes;
    by_segments<kProduct<T>>(job, form.offset, [&](int t, int at, int groups, Segment& out) {
        const size_t block = static_cast<size_t>(t) * blocks + static_cast<size_t>(at / (form.block / 32));
        decode_segment<T>(job.w.packed + block * form.quant_bytes, job.w.packed + tiles * blocks * form.quant_bytes + block * form.scale_bytes, groups,
                          blocks * form.quant_bytes, out);
    });
}

// Types without tiles: 16 rows of the file's blocks become a segment.
template <Product P> void from_file(const Job& job) {
    const size_t block_bytes = block_bytes_of(job.w.type), row_bytes = static_cast<size_t>(job.w.columns / 256) * block_bytes;
    by_segments<P>(job, 128, [&](int t, int at, int groups, Segment& out) {
        out.groups = groups;
        quants::Block b;
        for (int l = 0; l < kLanes; l++) {
            const int n = t * kLanes + l < job.w.rows ? t * kLanes + l : job.w.rows - 1;
            const uint8_t* row = job.w.data + static_cast<size_t>(n) * row_bytes + static_cast<size_t>(at / 8) * block_bytes;
            for (int block = 0; block < groups / 8; block++) {
                quants::decode_block(job.w.type, row + static_cast<size_t>(block) * block_bytes, b);
                for (int e = 0; e < 64; e++) {
                    uint32_t four;
                    memcpy(&four, b.q + 4 * e, 4);
                    four ^= 0x80808080u;
                    memcpy(out.v[8 * block + e / 8][e % 8] + 4 * l, &four, 4);
                }
                for (int s = 0; s < 16; s++) out.scale[16 * block + s][l] = b.scale[s], out.min[16 * block + s][l] = b.min[s];
                out.d[block][l] = b.d, out.dmin[block][l] = b.dmin;
            }
        }
    });
}

// F32, F16, BF16: the unrounded rows by lane_sum, kPart rows for one reading of a weight.
template <Type T> LUCE_FN __m512 float16(const uint8_t* row, int i) {
    if constexpr (T == Type::F32) return _mm512_loadu_ps(row + 4 * i);
    else if constexpr (T == Type::F16) return halves16(row + 2 * i);
    else return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * i))), 16));
}

template <Type T, int R> void float_rows(const uint8_t* w, const float* x, int columns, float* y, int stride) {
    float total[R];
    for (int s = 0; s < columns; s += ops::kSegment) {
        __m512 a[R], b[R];
        for (int r = 0; r < R; r++) a[r] = b[r] = _mm512_setzero_ps();
        for (int i = s; i < columns && i < s + ops::kSegment; i += 32) {
            const __m512 w0 = float16<T>(w, i), w1 = float16<T>(w, i + 16);
            for (int r = 0; r < R; r++) {
                const float* at = x + static_cast<size_t>(r) * columns + i;
                a[r] = _mm512_fmadd_ps(w0, _mm512_loadu_ps(at), a[r]), b[r] = _mm512_fmadd_ps(w1, _mm512_loadu_ps(at + 16), b[r]);
            }
        }
        for (int r = 0; r < R; r++) total[r] = s ? total[r] + tree32(a[r], b[r]) : tree32(a[r], b[r]);
    }
    for (int r = 0; r < R; r++) y[static_cast<size_t>(r) * stride] = total[r];
}

template <Type T> void floats(const Job& job) {
    constexpr int kPart = 4;
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
        case Type::F32: return floats<Type::F32>(job);
        case Type::F16: return floats<Type::F16>(job);
        case Type::BF16: return floats<Type::BF16>(job);
        case Type::Q2_K: return from_file<kQ2Product>(job);
        default: return from_file<kFileProduct>(job);
    }
}

}  // namespace lucebox::cpu::zmm
