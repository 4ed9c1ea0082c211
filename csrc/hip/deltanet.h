// ops/deltanet.h in two kernels. deltanet_step: a workgroup takes 64 values of a head of a span (grid x: value heads, y: 2, z: spans); a lane 32 keys
// of one value, in registers for all rows; q, k, v of up to 16 rows at a time are prepared in workgroup memory. deltanet_finish: gated norm and int8
// (a wave a head), and the rows go to the ring (grid x: rows, y: eights of heads).
#pragma once
#include "hip/quantize.h"

namespace lucebox::hip {
namespace {

using ops::kHeadDim;
inline constexpr int kDeltaValues = 64, kDeltaThreads = 4 * kDeltaValues, kDeltaRows = 16;
inline constexpr int kPadded = 4 * 36;                            // 128 keys, four floats more every 32: no bank conflicts
inline constexpr int kDeltaRow = 2 * kPadded + kDeltaValues;      // q, k, v of a row

// Raw projection of a channel at `back` tokens from the span's first row; before the sequence it is +0.
LUCE_DEVICE float raw_input(const DeltanetArgs& a, const ops::Span& span, int channels, int back, int channel) {
    const int position = span.position + back;
    const size_t in_ring = static_cast<size_t>(span.slot) * ops::kRing + static_cast<size_t>((position + ops::kRing) % ops::kRing);
    const float* from = back < 0 ? a.ring_u + in_ring * static_cast<size_t>(channels)
                                 : a.u + static_cast<size_t>(span.first + back) * static_cast<size_t>(channels);
    return position < 0 ? 0.0f : from[channel];
}

// Convolution, SiLU and L2 norm of q, k and the workgroup's values, and the gates, of rows first .. first + n - 1 (relative to the span's). A lane takes
// four rows of a channel at a time: their seven inputs are on their way together.
LUCE_DEVICE void prepare_rows(const DeltanetArgs& a, const ops::Span& span, int head, int first, int n, float* rows, float* gates) {
    const int channels = (2 * a.key_heads + a.value_heads) * kHeadDim, key_head = head % a.key_heads, values = block_id_y() * kDeltaValues;
    constexpr int kEach = 2 * kHeadDim + kDeltaValues, kAtOnce = 4;
    for (int i = thread_id(); i < (n + kAtOnce - 1) / kAtOnce * kEach; i += kDeltaThreads) {
        const int from = i / kEach * kAtOnce, c = i % kEach, kind = c / kHeadDim, e = c % kHeadDim;
        const int channel = kind == 2 ? (2 * a.key_heads + head) * kHeadDim + values + e : (kind * a.key_heads + key_head) * kHeadDim + e;
        const Float4 w = *reinterpret_cast<const Float4*>(a.conv + 4 * static_cast<size_t>(channel));
        float x[kAtOnce + 3];
        LUCE_UNROLL
        for (int j = 0; j < kAtOnce + 3; j++) x[j] = from + j - 3 < n ? raw_input(a, span, channels, first + from + j - 3, channel) : 0.0f;
        LUCE_UNROLL
        for (int j = 0; j < kAtOnce; j++) {
            const float y = ops::fma(w.w, x[j + 3], ops::fma(w.z, x[j + 2], ops::fma(w.y, x[j + 1], w.x * x[j])));
            if (from + j < n) rows[(from + j) * kDeltaRow + (kind == 2 ? 2 * kPadded + e : kind * kPadded + e + e / 32 * 4)] = ops::silu(y);
        }
    }
    if (thread_id() < n) {
        const int i = first + thread_id(), heads = a.value_heads;
        const size_t in_ring = static_cast<size_t>(span.slot) * ops::kRing + static_cast<size_t>((span.position + i + ops::kRing) % ops::kRing);
        const size_t ring = in_ring * 2 * static_cast<size_t>(heads);
        const size_t own = static_cast<size_t>(i < 0 ? 0 : span.first + i) * static_cast<size_t>(heads) + static_cast<size_t>(head);
        const float alpha = i < 0 ? a.ring_ab[ring + static_cast<size_t>(head)] : a.alpha[own];
        const float beta = i < 0 ? a.ring_ab[ring + static_cast<size_t>(heads + head)] : a.beta[own];
        gates[2 * thread_id()] = ops::exp(ops::softplus(alpha + a.dt[head]) * a.a[head]);
        gates[2 * thread_id() + 1] = ops::sigmoid(beta);
    }
    barrier();
    for (int i = thread_id() / 32; i < 2 * n; i += kDeltaThreads / 32) {
        float* x = rows + i / 2 * kDeltaRow + i % 2 * kPadded + lane_id();
        float acc = 0;
        for (int j = 0; j < 4; j++) acc = ops::fma(x[36 * j], x[36 * j], acc);
        const float r = inverse_sqrt(wave_sum(acc) + a.eps);
        for (int j = 0; j < 4; j++) x[36 * j] = i % 2 ? x[36 * j] * r : (x[36 * j] * r) * 0x1.6a09e6p-4f;
    }
    barrier();
}

// (a0 + a1) + (a2 + a3) of the four lanes of a value.
LUCE_DEVICE float join_keys(float v) {
    v = v + shfl_xor(v, 1);
    return v + shfl_xor(v, 2);
}

// One token on the lane's 32 keys of its value.
LUCE_DEVICE float delta_token(float (&S)[32], const float* q, const float* k, float v, float decay, float beta) {
    float kk[32], u = 0, o = 0;
    LUCE_UNROLL
    for (int i = 0; i < 32; i += 4) {
        const Float4 t = *reinterpret_cast<const Float4*>(k + i);
        kk[i] = t.x, kk[i + 1] = t.y, kk[i + 2] = t.z, kk[i + 3] = t.w;
    }
    LUCE_UNROLL
    for (int i = 0; i < 32; i++) {
        S[i] = S[i] * decay;
        u = ops::fma(S[i], kk[i], u);
    }
    u = beta * (v - join_keys(u));
    LUCE_UNROLL
    for (int i = 0; i < 32; i += 4) {
        const Float4 t = *reinterpret_cast<const Float4*>(q + i);
        const float qq[4] = {t.x, t.y, t.z, t.w};
        LUCE_UNROLL
        for (int e = 0; e < 4; e++) {
            S[i + e] = ops::fma(kk[i + e], u, S[i + e]);
            o = ops::fma(S[i + e], qq[e], o);
        }
    }
    return join_keys(o);
}

LUCE_DEVICE void deltanet_step(const DeltanetArgs& a) {
    LUCE_SHARED(Float4, memory, kDeltaRows * kDeltaRow / 4);
    LUCE_SHARED(float, gates, kDeltaRows * 2);
    if (block_id_z() >= a.batch->spans) return;
    const ops::Span span = a.batch->span[block_id_z()];
    float* rows = reinterpret_cast<float*>(memory);
    const int head = block_id(), t = thread_id(), value = t / 4, quarter = t % 4;
    const size_t state_head = static_cast<size_t>(span.slot) * static_cast<size_t>(a.value_heads) + static_cast<size_t>(head);
    Float4* state = reinterpret_cast<Float4*>(a.state) + state_head * 4096 + block_id_y() * kDeltaValues * 4 + t;
    float S[32];
    LUCE_UNROLL
    for (int j = 0; j < 8; j++) {
        const Float4 s = state[j * 512];
        S[4 * j] = s.x, S[4 * j + 1] = s.y, S[4 * j + 2] = s.z, S[4 * j + 3] = s.w;
    }
    const auto store_state = [&] {
        LUCE_UNROLL
        for (int j = 0; j < 8; j++) state[j * 512] = Float4{S[4 * j], S[4 * j + 1], S[4 * j + 2], S[4 * j + 3]};
    };
    for (int first = -span.pending; first < span.rows; first += kDeltaRows) {
        const int n = span.rows - first < kDeltaRows ? span.rows - first : kDeltaRows;
        prepare_rows(a, span, head, first, n, rows, gates);
        const auto token = [&](int r) {
            const float* row = rows + r * kDeltaRow;
            return delta_token(S, row + quarter * 36, row + kPadded + quarter * 36, row[2 * kPadded + value], gates[2 * r], gates[2 * r + 1]);
        };
        int r = 0;
        for (; r < n && first + r < 0; r++) token(r);
        if (first + r == 0 && !span.commit && span.pending > 0) store_state();
        float* out = a.y.x + (static_cast<size_t>(span.first + first + r) * static_cast<size_t>(a.value_heads) + static_cast<size_t>(head)) * kHeadDim +
                     block_id_y() * kDeltaValues + value;
        for (; r < n; r += 2) {  // by pairs: a token's output is summed while the next one is begun
            const bool pair = r + 1 < n;
            const float o = token(r);
            schedule_fence();
            if (quarter == 0) *out = o;
            if (!pair) break;
            const float o2 = token(r + 1);
            if (quarter == 0) out[a.value_heads * kHeadDim] = o2;
            out += 2 * a.value_heads * kHeadDim;
        }
        barrier();
    }
    if (span.commit || span.rows == 0) store_state();
}

// Rows of the call go to the ring, the last kRing of a span.
LUCE_DEVICE void keep_row(const DeltanetArgs& a, int row) {
    int s = 0;
    while (row >= a.batch->span[s].first + a.batch->span[s].rows) s++;
    const ops::Span span = a.batch->span[s];
    const int in = row - span.first, heads = a.value_heads, channels = (2 * a.key_heads + heads) * kHeadDim, step = (heads + 7) / 8 * 256;
    if (in < span.rows - ops::kRing) return;
    const size_t at = static_cast<size_t>(span.slot) * ops::kRing + static_cast<size_t>((span.position + in) % ops::kRing);
    const float* from = a.u + static_cast<size_t>(row) * static_cast<size_t>(channels);
    float* to = a.ring_u + at * static_cast<size_t>(channels);
    for (int i = block_id_y() * 256 + thread_id(); i < channels; i += step) to[i] = from[i];
    for (int i = block_id_y() * 256 + thread_id(); i < 2 * heads; i += step) {
        const size_t own = static_cast<size_t>(row) * static_cast<size_t>(heads) + static_cast<size_t>(i % heads);
        a.ring_ab[at * 2 * static_cast<size_t>(heads) + static_cast<size_t>(i)] = i < heads ? a.alpha[own] : a.beta[own];
    }
}

LUCE_DEVICE void deltanet_finish(const DeltanetArgs& a) {
    const int row = block_id(), head = block_id_y() * 8 + thread_id() / 32, lane = lane_id();
    if (row >= a.batch->rows) return;  // of the launch's bucket, behind the batch: there need be no memory for it
    const bool own = head < a.value_heads;
    const size_t at = (static_cast<size_t>(row) * static_cast<size_t>(a.value_heads) + static_cast<size_t>(own ? head : 0)) * kHeadDim;
    float acc = 0, o[4], v[4], z[4], w[4];  // loaded before anything is waited for
    for (int j = 0; j < 4; j++) o[j] = a.y.x[at + static_cast<size_t>(32 * j + lane)];
    load4(v, a.y.x + at + 4 * lane), load4(z, a.z + at + 4 * lane), load4(w, a.norm + 4 * lane);
    keep_row(a, row);
    if (!own) return;
    for (int j = 0; j < 4; j++) acc = ops::fma(o[j], o[j], acc);
    const float r = inverse_sqrt(wave_sum(acc) / 128.0f + a.eps);
    for (int i = 0; i < 4; i++) v[i] = ((v[i] * r) * w[i]) * ops::silu(z[i]);
    store4(a.y.x + at + 4 * lane, v);
    quantize_store(a.y, row, head * 4 + lane / 8, v, true);
}

}  // namespace
}  // namespace lucebox::hip
