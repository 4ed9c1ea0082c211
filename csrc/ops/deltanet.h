// deltanet: convolution, SiLU, L2 norm, gated delta rule and gated norm of one layer, for the rows of several sequences
//   in   u [rows, channels] f32 raw q|k|v projections, channels = (2 key_heads + value_heads) * 128 · alpha, beta [rows, value_heads] f32 ·
//        z [rows, value_heads * 128] f32 · conv [channels, 4] · dt, a [value_heads] · norm [128]
//   in/out  state [slots, value_heads, 128 keys, 128 values] f32 · ring_u [slots, 64, channels] · ring_ab [slots, 64, 2, value_heads],
//        ring rows at position mod 64                              out  y [rows, value_heads * 128] as Acts
//   value_heads a multiple of key_heads; value head j reads key head j mod key_heads · channels' order in the file
//   order: c = fma over taps, oldest first: w0 * u(t-3), fma(w1, u(t-2), .) ..., absent u = +0, then SiLU;
//     k^ = k * r, q^ = (q * r) * f32(1/sqrt(128)), r = 1 / sqrt(lane_sum(x^2) + eps);
//     decay = exp(softplus(alpha + dt) * a), beta = sigmoid(beta); per token S = S * decay; u = beta * (v - S^T k^); S = fma(k^, u, S); o = S^T q^;
//     a sum over keys has four fma chains of 32 keys from +0, joined (a0 + a1) + (a2 + a3); y = ((o * r) * norm) * SiLU(z), r the RMS of the head
//   deferred commit: a span's pending rows (in the ring, accepted before) are replayed into the state first. With `commit` the state is stored
//     after the span's rows; without, after the pending ones, and the rows stay in the ring. Rows of the call are written to the ring last.
//     (Prior art: ReplaySSM, vllm-project/vllm#49887, flashinfer-ai/flashinfer#4081.)
//   work: scratch of the backend · async, may be captured · cost: 2 * state + rows * (channels + 2 * value_heads * 128) * 4 bytes
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {
struct Deltanet {
    const Batch* batch;
    int key_heads, value_heads;
    float eps;
    const float* u;      // [rows, channels]
    const float* alpha;  // [rows, value_heads]
    const float* beta;   // [rows, value_heads]
    const float* z;      // [rows, value_heads * 128]
    const float* conv;   // [channels, 4]
    const float* dt;     // [value_heads]
    const float* a;      // [value_heads]
    const float* norm;   // [128]
    float* state;        // [slots, value_heads, 128, 128]
    float* ring_u;       // [slots, 64, channels]
    float* ring_ab;      // [slots, 64, 2, value_heads]
    Acts y;              // [rows, value_heads * 128]

    int channels() const { return (2 * key_heads + value_heads) * kHeadDim; }
};
}  // namespace lucebox::ops
