#include "cpu/backend.h"
#include "cpu/lanes.h"
#include "cpu/portable.h"
#include <cmath>

namespace lucebox::cpu {

using ops::kHeadDim;

void portable_conv_silu(const float* const* taps, const float* conv, int first, int last, float* y) {
    for (int c = first; c < last; c++) {
        float a = conv[4 * c] * taps[0][c];
        for (int j = 1; j < 4; j++) a = ops::fma(conv[4 * c + j], taps[j][c], a);
        y[c] = ops::silu(a);
    }
}

void portable_l2_norm(float* x, float eps, bool query) {
    const float r = 1.0f / std::sqrt(lane_sum([x](int i) { return x[i]; }, x, kHeadDim) + eps);
    for (int i = 0; i < kHeadDim; i++) x[i] = query ? (x[i] * r) * 0x1.6a09e6p-4f : x[i] * r;
}

// A sum over keys: four chains of 32 keys, joined (a0 + a1) + (a2 + a3).
static void key_sum(const float* S, const float* k, float* sum) {
    float a[4][kHeadDim] = {};
    for (int i = 0; i < kHeadDim; i++)
        for (int v = 0; v < kHeadDim; v++) a[i / 32][v] = ops::fma(S[i * kHeadDim + v], k[i], a[i / 32][v]);
    for (int v = 0; v < kHeadDim; v++) sum[v] = (a[0][v] + a[1][v]) + (a[2][v] + a[3][v]);
}

void portable_delta(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o) {
    float u[kHeadDim];
    for (int i = 0; i < kHeadDim * kHeadDim; i++) S[i] = S[i] * decay;
    key_sum(S, k, u);
    for (int j = 0; j < kHeadDim; j++) u[j] = beta * (v[j] - u[j]);
    for (int i = 0; i < kHeadDim; i++)
        for (int j = 0; j < kHeadDim; j++) S[i * kHeadDim + j] = ops::fma(k[i], u[j], S[i * kHeadDim + j]);
    key_sum(S, q, o);
}

void portable_gated_norm(const float* o, const float* norm, const float* z, float eps, float* y) {
    portable_norm_row(o, norm, kHeadDim, eps, y);
    for (int i = 0; i < kHeadDim; i++) y[i] = y[i] * ops::silu(z[i]);
}

// The rows of the call, each span's pending ones first, with the four raw rows its convolution reads.
void CpuBackend::collect_rows(const ops::Deltanet& op) {
    static const std::vector<float> zeros(1 << 16);  // the raw row before a sequence; config.cpp limits channels to less
    const size_t channels = static_cast<size_t>(op.channels());
    delta_rows_.clear();
    for (int s = 0; s < op.batch->spans; s++) {
        const ops::Span& span = op.batch->span[s];
        const size_t slot = static_cast<size_t>(span.slot);
        for (int i = -span.pending; i < span.rows; i++) {
            DeltaRow row{span.slot, span.position + i, i < 0 ? -1 : span.first + i, {}, nullptr, nullptr};
            for (int t = 0; t < 4; t++) {
                const int back = i - 3 + t;  // relative to the span's first row
                if (span.position + back < 0) row.taps[t] = zeros.data();
                else if (back >= 0) row.taps[t] = op.u + static_cast<size_t>(span.first + back) * channels;
                else row.taps[t] = op.ring_u + (slot * ops::kRing + static_cast<size_t>((span.position + back) % ops::kRing)) * channels;
            }
            if (i < 0) {
                row.alpha = op.ring_ab + (slot * ops::kRing + static_cast<size_t>(row.position % ops::kRing)) * 2 * op.value_heads;
                row.beta = row.alpha + op.value_heads;
            } else {
                row.alpha = op.alpha + static_cast<size_t>(row.batch_row) * op.value_heads;
                row.beta = op.beta + static_cast<size_t>(row.batch_row) * op.value_heads;
            }
            delta_rows_.push_back(row);
        }
    }
}

// Convolution and L2 norm of some of a row's heads (q, k, v heads of 128 channels); with the first head also the gates.
void CpuBackend::prepare_row(const ops::Deltanet& op, int at, int first_head, int last_head) {
    const DeltaRow& row = delta_rows_[static_cast<size_t>(at)];
    float* c = conv_out_ + static_cast<size_t>(at) * op.channels();
    kernels_.conv_silu(row.taps, op.conv, first_head * kHeadDim, last_head * kHeadDim, c);
    for (int h = first_head; h < last_head && h < 2 * op.key_heads; h++) kernels_.l2_norm(c + h * kHeadDim, op.eps, h < op.key_heads);
    if (first_head != 0) return;
    float* decay = gates_ + static_cast<size_t>(at) * 2 * op.value_heads;
    for (int j = 0; j < op.value_heads; j++) {
        decay[j] = ops::exp(ops::softplus(row.alpha[j] + op.dt[j]) * op.a[j]);
        decay[op.value_heads + j] = ops::sigmoid(row.beta[j]);
    }
}

// One value head of one span, token by token.
void CpuBackend::recur(const ops::Deltanet& op, const ops::Span& span, int first_row, int head, int thread) {
    constexpr size_t kState = kHeadDim * kHeadDim;
    float* S = op.state + (static_cast<size_t>(span.slot) * op.value_heads + head) * kState;
    float o[kHeadDim];
    for (int i = 0; i < span.pending + span.rows; i++) {
        if (i == span.pending && !span.commit) {  // what follows is not accepted yet: go on with a copy
            float* copy = states_ + static_cast<size_t>(thread) * kState;
            memcpy(copy, S, kState * sizeof(float));
            S = copy;
        }
        const size_t at = static_cast<size_t>(first_row + i);
        const float* c = conv_out_ + at * op.channels();
        const float* gates = gates_ + at * 2 * op.value_heads;
        const float *q = c + head % op.key_heads * kHeadDim, *k = q + op.key_heads * kHeadDim, *v = c + (2 * op.key_heads + head) * kHeadDim;
        kernels_.delta(S, q, k, v, gates[head], gates[op.value_heads + head], o);
        if (i >= span.pending) finish_head(op, span.first + i - span.pending, head, o);
    }
}

void CpuBackend::finish_head(const ops::Deltanet& op, int row, int head, const float* o) {
    const size_t at = static_cast<size_t>(row) * op.y.columns + head * kHeadDim;
    kernels_.gated_norm(o, op.norm, op.z + at, op.eps, op.y.x + at);
    kernels_.quantize_row(op.y.x + at, kHeadDim, op.y.q + at, op.y.d + at / 32, op.y.sum + at / 16);
}

void CpuBackend::keep_row(const ops::Deltanet& op, int row) {
    const size_t channels = static_cast<size_t>(op.channels()), heads = static_cast<size_t>(op.value_heads);
    const size_t at = static_cast<size_t>(op.batch->slot[row]) * ops::kRing + static_cast<size_t>(op.batch->position[row] % ops::kRing);
    memcpy(op.ring_u + at * channels, op.u + static_cast<size_t>(row) * channels, channels * sizeof(float));
    memcpy(op.ring_ab + at * 2 * heads, op.alpha + static_cast<size_t>(row) * heads, heads * sizeof(float));
    memcpy(op.ring_ab + at * 2 * heads + heads, op.beta + static_cast<size_t>(row) * heads, heads * sizeof(float));
}

void CpuBackend::deltanet(const ops::Deltanet& op) {
    collect_rows(op);
    constexpr int kHeadsATask = 8;
    const int all_heads = op.channels() / kHeadDim, cuts = (all_heads + kHeadsATask - 1) / kHeadsATask;
    pool_.run(static_cast<int>(delta_rows_.size()) * cuts, [&](int task, int) {
        const int first = task % cuts * kHeadsATask;
        prepare_row(op, task / cuts, first, std::min(all_heads, first + kHeadsATask));
    });
    pool_.run(op.batch->spans * op.value_heads, [&](int task, int thread) {
        const int s = task / op.value_heads;
        int first_row = 0;
        for (int i = 0; i < s; i++) first_row += op.batch->span[i].pending + op.batch->span[i].rows;
        recur(op, op.batch->span[s], first_row, task % op.value_heads, thread);
    });
    for (int s = 0; s < op.batch->spans; s++) {
        const ops::Span& span = op.batch->span[s];
        const int kept = std::min(span.rows, ops::kRing);
        pool_.run(kept, [&](int i, int) { keep_row(op, span.first + span.rows - kept + i); });
    }
}

}  // namespace lucebox::cpu
