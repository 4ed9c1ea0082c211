// ops/norm.h: a workgroup takes a row, a wave its segments of 1,024 in turn; then a lane four values, a wave 128.
#pragma once
#include "hip/quantize.h"

namespace lucebox::hip {
namespace {

inline constexpr int kMaxSegments = 16;

// Sum of squares of a segment's `count` values by lane_sum; all loads are on their way before the chain starts.
LUCE_DEVICE float segment_of_squares(const float* x, int count) {
    const int lane = lane_id();
    float v[32], acc = 0;
    LUCE_UNROLL
    for (int j = 0; j < 32; j++) v[j] = 32 * j + lane < count ? x[32 * j + lane] : 0.0f;
    LUCE_UNROLL
    for (int j = 0; j < 32; j++) acc = ops::fma(v[j], v[j], acc);  // a zero adds nothing to a sum that is +0 or more
    return wave_sum(acc);
}

LUCE_DEVICE void norm(const NormArgs& a) {
    LUCE_SHARED(float, part, kMaxSegments);
    const int row = block_id(), wave = thread_id() / 32, segments = (a.hidden + ops::kSegment - 1) / ops::kSegment;
    const float* x = a.x + static_cast<size_t>(a.select ? a.select[row] : row) * static_cast<size_t>(a.hidden);
    for (int s = wave; s < segments; s += kNormWaves) {
        const int left = a.hidden - s * ops::kSegment;
        const float sum = segment_of_squares(x + s * ops::kSegment, left < ops::kSegment ? left : ops::kSegment);
        if (lane_id() == 0) part[s] = sum;
    }
    constexpr int kAhead = 2;  // this lane's first values, while the sum is made
    float v[kAhead][4] = {}, w[kAhead][4] = {};
    LUCE_UNROLL
    for (int i = 0; i < kAhead; i++) {
        const int at = (i * kNormWaves + wave) * 128 + lane_id() * 4;
        if (at < a.hidden) load4(v[i], x + at), load4(w[i], a.weight + at);
    }
    barrier();
    float total = part[0];
    for (int s = 1; s < segments; s++) total = total + part[s];
    const float r = inverse_sqrt(total / static_cast<float>(a.hidden) + a.eps);
    const auto finish = [&a, row, r](float (&x)[4], const float (&weight)[4], int at) {
        const bool live = at < a.hidden;
        for (int i = 0; i < 4; i++) x[i] = (x[i] * r) * weight[i];
        if (live) store4(a.y.x + static_cast<size_t>(row) * static_cast<size_t>(a.hidden) + at, x);
        quantize_store(a.y, row, at / 32, x, live);
    };
    LUCE_UNROLL
    for (int i = 0; i < kAhead; i++) {
        const int first = (i * kNormWaves + wave) * 128;
        if (first < a.hidden) finish(v[i], w[i], first + lane_id() * 4);
    }
    for (int first = (kAhead * kNormWaves + wave) * 128; first < a.hidden; first += kNormWaves * 128) {
        const int at = first + lane_id() * 4;
        float more[4] = {}, weight[4] = {};
        if (at < a.hidden) load4(more, x + at), load4(weight, a.weight + at);
        finish(more, weight, at);
    }
}

}  // namespace
}  // namespace lucebox::hip
