#include "cpu/backend.h"
#include "cpu/elementwise.h"
#include "cpu/portable.h"
#include "ops/math.h"

namespace lucebox::cpu {

void portable_swiglu_row(const float* gate, const float* up, int n, float* y) {
    for (int i = 0; i < n; i++) y[i] = ops::silu(gate[i]) * up[i];
}

void portable_math_row(MathFunction function, const float* x, int n, float* y) { math_loop(function, x, n, y); }

void CpuBackend::swiglu(const ops::Swiglu& op) {
    constexpr int kCut = 1024;  // one row is several tasks, so that a decode step uses all threads
    const int cuts = (op.ff + kCut - 1) / kCut;
    pool_.run(op.rows * cuts, [&](int task, int) {
        const int row = task / cuts, first = task % cuts * kCut, n = std::min(kCut, op.ff - first);
        const size_t at = static_cast<size_t>(row) * op.ff + first;
        kernels_.swiglu_row(op.gate + at, op.up + at, n, op.y.x + at);
        kernels_.quantize_row(op.y.x + at, n, op.y.q + at, op.y.d + at / 32, op.y.sum + at / 16);
    });
}

}  // namespace lucebox::cpu
