// Loops over single elements, written once and vectorised by the compiler for the unit that includes them.
#pragma once
#include "cpu/kernels.h"
#include "ops/math.h"

namespace lucebox::cpu {

LUCE_FN void silu_times(const float* gate, const float* up, int n, float* __restrict y) {
    for (int i = 0; i < n; i++) y[i] = ops::silu(gate[i]) * up[i];
}

LUCE_FN void conv_silu_loop(const float* u0, const float* u1, const float* u2, const float* u3, const float* w, int first, int last,
                            float* __restrict y) {
    for (int c = first; c < last; c++) {
        float a = w[4 * c] * u0[c];
        a = ops::fma(w[4 * c + 1], u1[c], a);
        a = ops::fma(w[4 * c + 2], u2[c], a);
        y[c] = ops::silu(ops::fma(w[4 * c + 3], u3[c], a));
    }
}

LUCE_FN void math_loop(MathFunction function, const float* x, int n, float* __restrict y) {
    switch (function) {
        case MathFunction::kExp:
            for (int i = 0; i < n; i++) y[i] = ops::exp(x[i]);
            break;
        case MathFunction::kSigmoid:
            for (int i = 0; i < n; i++) y[i] = ops::sigmoid(x[i]);
            break;
        case MathFunction::kSilu:
            for (int i = 0; i < n; i++) y[i] = ops::silu(x[i]);
            break;
        case MathFunction::kSoftplus:
            for (int i = 0; i < n; i++) y[i] = ops::softplus(x[i]);
            break;
        case MathFunction::kF16:
            for (int i = 0; i < n; i++) y[i] = ops::from_f16(ops::to_f16(x[i]));
            break;
    }
}

}  // namespace lucebox::cpu
