#include "cpu/backend.h"
#include "cpu/lanes.h"
#include "cpu/portable.h"
#include <cmath>

namespace lucebox::cpu {

void portable_norm_row(const float* x, const float* w, int n, float eps, float* y) {
    const float sum = lane_sum([x](int i) { return x[i]; }, x, n);
    const float r = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
    for (int i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
}

void portable_quantize_row(const float* x, int n, int8_t* q, float* d, int32_t* sum) {
    for (int g = 0; g < n / 32; g++) d[g] = quantize32(x + 32 * g, q + 32 * g);
    for (int h = 0; h < n / 16; h++) {
        sum[h] = 0;
        for (int i = 0; i < 16; i++) sum[h] += q[16 * h + i];
    }
}

void CpuBackend::quantize_row(const ops::Acts& acts, int row) {
    const size_t at = static_cast<size_t>(row) * acts.columns;
    kernels_.quantize_row(acts.x + at, acts.columns, acts.q + at, acts.d + at / 32, acts.sum + at / 16);
}

void CpuBackend::norm(const ops::Norm& op) {
    pool_.run(op.count, [&](int i, int) {
        const size_t row = static_cast<size_t>(op.select ? op.select[i] : i);
        kernels_.norm_row(op.x + row * op.hidden, op.weight, op.hidden, op.eps, op.y.x + static_cast<size_t>(i) * op.hidden);
        quantize_row(op.y, i);
    });
}

}  // namespace lucebox::cpu
