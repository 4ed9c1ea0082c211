// The K types: 256 values with integer scales per 16 or 32. n, j, l name an element: e = 128 n + 32 j + l.
#include "quants/blocks.h"

namespace lucebox::quants {
namespace {

struct Place {
    int n, j, l;
};
Place place(int e) { return {e / 128, e % 128 / 32, e % 32}; }

// The 12 bytes of scales and minimums of Q4_K and Q5_K.
void set_scales(Block& out, const uint8_t* b) {
    out.d = f16(b, 0);
    out.dmin = f16(b, 2);
    for (int s = 0; s < 16; s++) {
        const ScaleMin pair = scale_min(b + 4, s / 2);
        out.scale[s] = static_cast<int8_t>(pair.scale);
        out.min[s] = pair.min;
    }
}

}  // namespace

void decode_q2_K(const uint8_t* b, Block& out) {
    out.d = f16(b, 80);
    out.dmin = f16(b, 82);
    for (int s = 0; s < 16; s++) {
        out.scale[s] = b[s] & 15;
        out.min[s] = b[s] >> 4;
    }
    for (int e = 0; e < 256; e++) {
        const auto [n, j, l] = place(e);
        out.q[e] = (b[16 + 32 * n + l] >> 2 * j) & 3;
    }
}

void decode_q3_K(const uint8_t* b, Block& out) {
    out.d = f16(b, 108);
    for (int s = 0; s < 16; s++) {
        const int low = s < 8 ? b[96 + s] & 15 : b[88 + s] >> 4, high = (b[104 + s % 4] >> 2 * (s / 4)) & 3;
        out.scale[s] = static_cast<int8_t>((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++) {
        const auto [n, j, l] = place(e);
        const int high = (b[l] >> (4 * n + j)) & 1;
        out.q[e] = static_cast<int8_t>(((b[32 + 32 * n + l] >> 2 * j) & 3) - (high ? 0 : 4));
    }
}

void decode_q4_K(const uint8_t* b, Block& out) {
    set_scales(out, b);
    for (int e = 0; e < 256; e++) out.q[e] = static_cast<int8_t>(nibble(b, 16 + 32 * (e / 64) + e % 32, e / 32 % 2));
}

void decode_q5_K(const uint8_t* b, Block& out) {
    set_scales(out, b);
    for (int e = 0; e < 256; e++) {
        const int s = e / 32, l = e % 32, high = (b[16 + l] >> s) & 1;
        out.q[e] = static_cast<int8_t>(nibble(b, 48 + 32 * (e / 64) + l, s % 2) + 16 * high);
    }
}

void decode_q6_K(const uint8_t* b, Block& out) {
    out.d = f16(b, 208);
    std::memcpy(out.scale, b + 192, 16);
    for (int e = 0; e < 256; e++) {
        const auto [n, j, l] = place(e);
        const int low = nibble(b, 64 * n + l + 32 * (j & 1), j >> 1), high = (b[128 + 32 * n + l] >> 2 * j) & 3;
        out.q[e] = static_cast<int8_t>((low | high << 4) - 32);
    }
}

}  // namespace lucebox::quants
