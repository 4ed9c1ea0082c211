// ops/norm.h: a workgroup takes a row, a wave its segments of 1,024 in turn; then a lane four values, a wave 128.
#pragma once
#include "hip/quantize.h"

namespace lucebox::hip {
namespace {

inline constexpr int kNormWaves = 8, kMaxSegments = 16;

// Sum of squares of n values by lane_sum; all threads of the workgroup of `waves` waves get it. part: [kMaxSegments] of workgroup memory.
LUCE_DEVICE float sum_of_squares(const float* x, int n, int waves, float* part) {
    const int lane = lane_id(), segments = (n + ops::kSegment - 1) / ops::kSegment;
    for (int s = thread_id() / 32; s < segments; s += waves) {
        float acc = 0;
        const int last = n - s * ops::kSegment < ops::kSegment ? n : (s + 1) * ops::kSegment;
        for (int i = s * ops::kSegment + lane; i < last; i += 32) acc = ops::fma(x[i], x[i], acc);
        acc = wave_sum(acc);
        if (lane == 0) part[s] = acc;
    }
    barrier();
    float total = part[0];
    for (int s = 1; s < segments; s++) total = total + part[s];
    return total;
}

LUCE_DEVICE void norm(const NormArgs& a) {
    LUCE_SHARED(float, part, kMaxSegments);
    const int row = block_id();
    const float* x = a.x + static_cast<size_t>(a.select ? a.select[row] : row) * static_cast<size_t>(a.hidden);
    const float r = inverse_sqrt(sum_of_squares(x, a.hidden, kNormWaves, part) / static_cast<float>(a.hidden) + a.eps);
    for (int first = thread_id() / 32 * 128; first < a.hidden; first += kNormWaves * 128) {
        const int at = first + lane_id() * 4;
        const bool live = at < a.hidden;
        float v[4] = {}, w[4] = {};
        if (live) {
            load4(v, x + at), load4(w, a.weight + at);
            for (int i = 0; i < 4; i++) v[i] = (v[i] * r) * w[i];
            store4(a.y.x + static_cast<size_t>(row) * static_cast<size_t>(a.hidden) + at, v);
        }
        quantize_store(a.y, row, at / 32, v, live);
    }
}

}  // namespace
}  // namespace lucebox::hip
