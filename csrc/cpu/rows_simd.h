// Norm and DeltaNet for the SIMD variants, written once over a variant's vectors L (lanes_avx2.h, lanes_avx512.h). Everything here is inlined
// into the units of a variant.
#pragma once
#include "ops/math.h"
#include "ops/tensor.h"

namespace lucebox::cpu {

using ops::kHeadDim;

// lane_sum(x^2); n is a multiple of 32.
template <class L> LUCE_FN float sum_squares(const float* x, int n) {
    constexpr int kVectors = 32 / L::kWidth;
    float total = 0;
    for (int s = 0; s < n; s += ops::kSegment) {
        typename L::V lane[kVectors];
        for (auto& v : lane) v = L::all(0);
        for (int i = s; i < n && i < s + ops::kSegment; i += 32)
            for (int l = 0; l < kVectors; l++) {
                const auto v = L::load(x + i + L::kWidth * l);
                lane[l] = L::fma(v, v, lane[l]);
            }
        const float sum = L::tree32(lane);
        total = s ? total + sum : sum;
    }
    return total;
}

// y may be x.
template <class L> LUCE_FN void norm(const float* x, const float* w, int n, float eps, float* y) {
    const auto r = L::all(1.0f / L::sqrt(sum_squares<L>(x, n) / static_cast<float>(n) + eps));
    for (int i = 0; i < n; i += L::kWidth) L::store(y + i, L::mul(L::mul(L::load(x + i), r), L::load(w + i)));
}

template <class L> LUCE_FN void unit_length(float* x, float eps, bool query) {
    const auto r = L::all(1.0f / L::sqrt(sum_squares<L>(x, kHeadDim) + eps)), factor = L::all(0x1.6a09e6p-4f);
    for (int i = 0; i < kHeadDim; i += L::kWidth) {
        const auto k = L::mul(L::load(x + i), r);
        L::store(x + i, query ? L::mul(k, factor) : k);
    }
}

// A sum over keys: four chains of 32, of two vectors of values each.
template <class L> struct KeySum {
    typename L::V a[4][2];
    [[gnu::always_inline]] KeySum() {
        for (auto& chain : a) chain[0] = chain[1] = L::all(0);
    }
    [[gnu::always_inline]] typename L::V joined(int h) const { return L::add(L::add(a[0][h], a[1][h]), L::add(a[2][h], a[3][h])); }
};

// Two vectors of values at a time: that part of the state (8 or 16 KB) is read twice from the first cache. S is decayed again in the second pass
// instead of stored twice.
template <class L> LUCE_FN void delta_rule(float* S, const float* q, const float* k, const float* v, float decay, float beta, float* o) {
    constexpr int kChain = kHeadDim / 4;
    const auto dv = L::all(decay), bv = L::all(beta);
    for (int j = 0; j < kHeadDim; j += 2 * L::kWidth) {
        KeySum<L> sk, sq;
        typename L::V u[2];
        for (int i = 0; i < kChain; i++)
            for (int c = 0; c < 4; c++)
                for (int h = 0; h < 2; h++) {
                    const int key = kChain * c + i;
                    const auto s = L::mul(L::load(S + key * kHeadDim + j + L::kWidth * h), dv);
                    sk.a[c][h] = L::fma(s, L::all(k[key]), sk.a[c][h]);
                }
        for (int h = 0; h < 2; h++) u[h] = L::mul(bv, L::sub(L::load(v + j + L::kWidth * h), sk.joined(h)));
        for (int i = 0; i < kChain; i++)
            for (int c = 0; c < 4; c++)
                for (int h = 0; h < 2; h++) {
                    const int key = kChain * c + i;
                    float* at = S + key * kHeadDim + j + L::kWidth * h;
                    const auto s = L::fma(L::all(k[key]), u[h], L::mul(L::load(at), dv));
                    L::store(at, s);
                    sq.a[c][h] = L::fma(s, L::all(q[key]), sq.a[c][h]);
                }
        for (int h = 0; h < 2; h++) L::store(o + j + L::kWidth * h, sq.joined(h));
    }
}

template <class L> LUCE_FN void gated(const float* o, const float* w, const float* z, float eps, float* __restrict y) {
    float normed[kHeadDim];
    norm<L>(o, w, kHeadDim, eps, normed);
    for (int i = 0; i < kHeadDim; i++) y[i] = normed[i] * ops::silu(z[i]);
}

}  // namespace lucebox::cpu
