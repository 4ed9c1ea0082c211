// ops/matmul.h for F32, F16 and BF16 weights: a wave takes an output and kRows rows, by lane_sum. Grid x: 8 outputs a workgroup, y: row groups.
#pragma once
#include "hip/compat.h"
#include "hip/params.h"

namespace lucebox::hip {
namespace {

inline constexpr int kFloatWaves = 8, kFloatRows = 4;

struct F32 {
    static constexpr int kBytes = 4;
    LUCE_DEVICE float value(const uint8_t* p) { return *reinterpret_cast<const float*>(p); }
};
struct F16 {
    static constexpr int kBytes = 2;
    LUCE_DEVICE float value(const uint8_t* p) { return half_to_float(*reinterpret_cast<const uint16_t*>(p)); }
};
struct BF16 {
    static constexpr int kBytes = 2;
    LUCE_DEVICE float value(const uint8_t* p) { return ops::from_bf16(*reinterpret_cast<const uint16_t*>(p)); }
};

template <class T> LUCE_DEVICE void matmul_float(const MatmulArgs& a) {
    int p = 0;
    while (p + 1 < a.parts && block_id() >= a.part[p + 1].first) p++;
    const MatmulPart& part = a.part[p];
    const int lane = lane_id(), n = (block_id() - part.first) * kFloatWaves + thread_id() / 32, row = block_id_y() * kFloatRows, k = a.x.columns;
    if (n >= part.outputs) return;
    const uint8_t* w = part.weight + static_cast<size_t>(n) * static_cast<size_t>(k) * T::kBytes;
    const float* x[kFloatRows];
    for (int m = 0; m < kFloatRows; m++) {  // a row beyond the last is the last again
        x[m] = a.x.x + static_cast<size_t>(row + m < a.rows ? row + m : a.rows - 1) * static_cast<size_t>(k);
    }
    float total[kFloatRows] = {};
    for (int s = 0; s < k; s += ops::kSegment) {
        float acc[kFloatRows] = {};
        const int last = k < s + ops::kSegment ? k : s + ops::kSegment;
        for (int i = s + lane; i < last; i += 32) {
            const float v = T::value(w + static_cast<size_t>(i) * T::kBytes);
            for (int m = 0; m < kFloatRows; m++) acc[m] = ops::fma(v, x[m][i], acc[m]);
        }
        for (int m = 0; m < kFloatRows; m++) {
            const float sum = wave_sum(acc[m]);
            total[m] = s ? total[m] + sum : sum;
        }
    }
    if (lane != 0) return;
    for (int m = 0; m < kFloatRows && row + m < a.rows; m++) {
        float& y = part.y[static_cast<size_t>(row + m) * static_cast<size_t>(part.outputs) + static_cast<size_t>(n)];
        y = a.residual ? y + total[m] : total[m];
    }
}

// ops/embed.h for these types: grid x: rows of the batch's bucket.
template <class T> LUCE_DEVICE void embed_float(const EmbedArgs& a) {
    const int row = block_id();
    if (!a.ids && row >= a.batch->rows) return;
    const int token = a.ids ? a.ids[row] : a.batch->token[row];
    if (token < 0) return;
    const uint8_t* from = a.data + static_cast<size_t>(token) * static_cast<size_t>(a.columns) * T::kBytes;
    float* h = a.h + static_cast<size_t>(row) * static_cast<size_t>(a.columns);
    for (int i = thread_id(); i < a.columns; i += 256) h[i] = T::value(from + static_cast<size_t>(i) * T::kBytes);
}

}  // namespace
}  // namespace lucebox::hip
