// ops/deltanet.h in AVX-512: lanes are channels or values.
#include "cpu/elementwise.h"
#include "cpu/lanes_avx512.h"
#include "cpu/rows_simd.h"
#include "cpu/simd.h"

namespace lucebox::cpu::zmm {

void conv_silu(const float* const* taps, const float* conv, int first, int last, float* y) {
    conv_silu_loop(taps[0], taps[1], taps[2], taps[3], conv, first, last, y);
}
void l2_norm(float* x, float eps, bool query) { unit_length<Lanes>(x, eps, query); }
void delta(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o) { delta_rule<Lanes>(S, q, k, v, decay, beta, o); }
void gated_norm(const float* o, const float* norm, const float* z, float eps, float* y) { gated<Lanes>(o, norm, z, eps, y); }

}  // namespace lucebox::cpu::zmm
