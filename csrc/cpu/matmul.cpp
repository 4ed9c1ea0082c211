#include "cpu/backend.h"
#include "cpu/lanes.h"
#include "cpu/portable.h"
#include "quants/quants.h"

namespace lucebox::cpu {

namespace {

using gguf::Type;

// F32, F16 and BF16 weights: the unrounded row by lane_sum.
float float_dot(const ops::Weight& w, int n, const float* x) {
    const uint8_t* row = w.data + static_cast<uint64_t>(n) * gguf::row_bytes(w.type, w.columns);
    if (w.type == Type::F32) return lane_sum([&](int i) { float v; return memcpy(&v, row + 4 * i, 4), v; }, x, w.columns);
    const auto half = [row](int i) { uint16_t v; return memcpy(&v, row + 2 * i, 2), v; };
    if (w.type == Type::F16) return lane_sum([&](int i) { return ops::from_f16(half(i)); }, x, w.columns);
    return lane_sum([&](int i) { return ops::from_bf16(half(i)); }, x, w.columns);
}

// P of the 32 values from e on: exact in integers.
int dot32(const quants::Block& b, int e, const int8_t* q) {
    int p = 0;
    for (int h = 0; h < 2; h++) {
        int dot = 0;
        for (int i = 0; i < 16; i++) dot += b.q[e + 16 * h + i] * q[16 * h + i];
        p += b.scale[e / 16 + h] * dot;
    }
    return p;
}

// One block of one output times one row: acc goes on.
float add_block(Type type, const quants::Block& b, const int8_t* q, const float* d, const int32_t* sum, float acc) {
    const bool minimum = quants::has_minimum(type);
    if (gguf::type_info(type).block == 32) {
        acc = ops::fma(b.d * d[0], static_cast<float>(dot32(b, 0, q)), acc);
        return minimum ? ops::fma(b.dmin, d[0] * static_cast<float>(sum[0] + sum[1]), acc) : acc;
    }
    float f = 0, g = 0;
    for (int j = 0; j < 8; j++) {
        f = ops::fma(d[j], static_cast<float>(dot32(b, 32 * j, q + 32 * j)), f);
        if (type == Type::Q2_K) {
            for (int h = 2 * j; h < 2 * j + 2; h++) g = ops::fma(static_cast<float>(b.min[h]), d[j] * static_cast<float>(sum[h]), g);
        } else if (minimum) {
            g = ops::fma(static_cast<float>(b.min[2 * j]), d[j] * static_cast<float>(sum[2 * j] + sum[2 * j + 1]), g);
        }
    }
    acc = ops::fma(b.d, f, acc);
    return minimum ? ops::fma(-b.dmin, g, acc) : acc;
}

}  // namespace

uint64_t portable_packed_bytes(Type, uint64_t, uint64_t) { return 0; }
void portable_pack(const ops::Weight&, int, int, uint8_t*) {}

void portable_matmul(const ops::Weight& w, const ops::Acts& acts, int rows, int first, int last, float* y, int stride) {
    const int k = w.columns, block = static_cast<int>(gguf::type_info(w.type).block);
    const uint64_t row_bytes = gguf::row_bytes(w.type, k), block_bytes = gguf::type_info(w.type).bytes;
    for (int n = first; n < last; n++) {
        if (gguf::is_float(w.type)) {
            for (int r = 0; r < rows; r++) y[static_cast<size_t>(r) * stride + n - first] = float_dot(w, n, acts.x + static_cast<size_t>(r) * k);
            continue;
        }
        float total[ops::kMaxRows], acc[ops::kMaxRows];
        for (int s = 0; s < k; s += ops::kSegment) {
            for (int r = 0; r < rows; r++) acc[r] = 0;
            for (int e = s; e < k && e < s + ops::kSegment; e += block) {
                quants::Block b;
                quants::decode_block(w.type, w.data + static_cast<uint64_t>(n) * row_bytes + static_cast<uint64_t>(e / block) * block_bytes, b);
                for (int r = 0; r < rows; r++) {
                    const size_t at = static_cast<size_t>(r) * k + e;
                    acc[r] = add_block(w.type, b, acts.q + at, acts.d + at / 32, acts.sum + at / 16, acc[r]);
                }
            }
            for (int r = 0; r < rows; r++) total[r] = s ? total[r] + acc[r] : acc[r];
        }
        for (int r = 0; r < rows; r++) y[static_cast<size_t>(r) * stride + n - first] = total[r];
    }
}

void CpuBackend::matmul(const ops::Matmul& op) {
    // Tasks of whole 16-output tiles, some eight a thread, over all weights of the call.
    int tiles[4], total = 0;
    for (int i = 0; i < op.weights; i++) total += tiles[i] = (op.weight[i].rows + 15) / 16;
    const int each = std::max(1, total / (8 * pool_.threads())), tasks = (total + each - 1) / each;
    pool_.run(tasks, [&](int task, int) {
        int tile = task * each, left = std::min(each, total - tile);
        for (int i = 0; i < op.weights && left > 0; i++) {
            if (tile >= tiles[i]) {
                tile -= tiles[i];
                continue;
            }
            const int n = std::min(left, tiles[i] - tile), first = 16 * tile, last = std::min(op.weight[i].rows, 16 * (tile + n));
            matmul_part(op, i, first, last);
            left -= n, tile = 0;
        }
    });
}

void CpuBackend::matmul_part(const ops::Matmul& op, int i, int first, int last) {
    const ops::Weight& w = op.weight[i];
    if (!op.residual) {
        kernels_.matmul(w, op.acts, op.rows, first, last, op.y[i] + first, w.rows);
        return;
    }
    constexpr int kCut = 64;  // the product is complete before it is added
    float part[ops::kMaxRows * kCut];
    for (int n = first; n < last; n += kCut) {
        const int end = std::min(last, n + kCut);
        kernels_.matmul(w, op.acts, op.rows, n, end, part, kCut);
        for (int r = 0; r < op.rows; r++)
            for (int j = n; j < end; j++) {
                float& h = op.y[i][static_cast<size_t>(r) * w.rows + j];
                h = h + part[r * kCut + j - n];
            }
    }
}

}  // namespace lucebox::cpu
