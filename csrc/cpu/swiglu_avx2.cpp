// ops/swiglu.h and the functions of ops/math.h, vectorised by the compiler.
#include "cpu/elementwise.h"
#include "cpu/simd.h"

namespace lucebox::cpu::ymm {
void swiglu_row(const float* gate, const float* up, int n, float* y) { silu_times(gate, up, n, y); }
void math_row(MathFunction function, const float* x, int n, float* y) { math_loop(function, x, n, y); }
}  // namespace lucebox::cpu::ymm
