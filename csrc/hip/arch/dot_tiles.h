// The tile product where there is no matrix unit: dot4 and shuffles, fragments and sums as on gfx12. Needs shfl, shfl_xor and dot4.
#pragma once
#define LUCE_DOT_TILES  // kernels that live on tile products are left out

namespace lucebox::hip {
namespace {

// Sums over k below 16 (first = 0) or the others (first = 2) of the words of w and x.
LUCE_DEVICE void add_half_tile(int (&d)[8], int first, const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    const int lane = lane_id();
    const uint32_t far0 = shfl_xor(w[first], 16), far1 = shfl_xor(w[first + 1], 16);
    LUCE_UNROLL
    for (int i = 0; i < 8; i++)
        LUCE_UNROLL
        for (int h = 0; h < 2; h++) {
            const int source = MapGfx12::acc_r(lane, i) + 16 * h;
            const uint32_t x0 = shfl(x[first], source), x1 = shfl(x[first + 1], source);
            const bool own = h == lane >> 4;
            d[i] = dot4(own ? w[first] : far0, x0, d[i]);
            d[i] = dot4(own ? w[first + 1] : far1, x1, d[i]);
        }
}
template <int kRows, bool kSigned = true, int kStart = 0, bool kOnto = false>
LUCE_DEVICE void tile32(int (&d)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    for (int i = 0; i < 8; i++) d[i] = kOnto ? d[i] : kStart;
    if (kSigned) {
        add_half_tile(d, 0, w, x), add_half_tile(d, 2, w, x);
        return;
    }
    uint32_t low[4], top[4];  // an unsigned byte = its low seven bits + 128 times its top bit
    int t[8] = {};
    for (int i = 0; i < 4; i++) low[i] = w[i] & 0x7f7f7f7fu, top[i] = (w[i] >> 7) & 0x01010101u;
    add_half_tile(d, 0, low, x), add_half_tile(d, 2, low, x), add_half_tile(t, 0, top, x), add_half_tile(t, 2, top, x);
    for (int i = 0; i < 8; i++) d[i] += 128 * t[i];
}
template <int kRows> LUCE_DEVICE void tile16(int (&d0)[8], int (&d1)[8], const uint32_t (&w)[4], const uint32_t (&x)[4]) {
    for (int i = 0; i < 8; i++) d0[i] = d1[i] = 0;
    add_half_tile(d0, 0, w, x), add_half_tile(d1, 2, w, x);
}

}  // namespace
}  // namespace lucebox::hip
