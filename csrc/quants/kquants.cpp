// The K types: 256 values with integer scales per 16 or 32. n, j, l name an element: e = 128 n + 32 j + l.
#include "quants/blocks.h"
#include "quants/search.h"
#include <algorithm>
#include <cmath>

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

void put_scales(uint8_t* c, const uint8_t* scale, const uint8_t* min) {
    for (int s = 0; s < 4; s++) {
        c[s] = static_cast<uint8_t>((scale[s] & 63) | (scale[s + 4] & 48) << 2);
        c[s + 4] = static_cast<uint8_t>((min[s] & 63) | (min[s + 4] & 48) << 2);
        c[s + 8] = static_cast<uint8_t>((scale[s + 4] & 15) | (min[s + 4] & 15) << 4);
    }
}

// Eight scales or minimums as 6-bit levels of one f32: by their largest, or by a weighted search.
float search_six_bits(const float* x, const float* w, uint8_t* level) {
    if (w) return search_positive(x, w, 8, 63, level);
    const float most = std::max(0.0f, *std::max_element(x, x + 8)), inverse = most > 0 ? 63 / most : 0;
    for (int s = 0; s < 8; s++) level[s] = static_cast<uint8_t>(std::min(63, round_even(inverse * x[s])));
    return most / 63;
}

void encode_block_q4_K(const float* x, const float* importance, uint8_t* out) {
    float sum = 0;
    for (int e = 0; e < 256; e++) sum += x[e] * x[e];
    float w[32], sum_w[8], scale[8], min[8];
    uint8_t level[256], scale_level[8], min_level[8];
    for (int s = 0; s < 8; s++) {
        const float* xs = x + 32 * s;
        float squares = 0;
        for (int l = 0; l < 32; l++) squares += xs[l] * xs[l];
        const float size = std::sqrt(squares / 32);
        sum_w[s] = 0;
        for (int l = 0; l < 32; l++) {
            w[l] = importance ? importance[32 * s + l] * std::sqrt(2 * sum / 256 + xs[l] * xs[l]) : size + std::fabs(xs[l]);
            sum_w[s] += w[l];
        }
        const ScaleRange range = importance ? ScaleRange{-0.9f, 0.05f, 36} : ScaleRange{-1, 0.1f, 20};
        const ScaleOffset fit = search_offset(xs, w, 32, 15, range, level + 32 * s);
        scale[s] = fit.scale;
        min[s] = fit.min;
    }
    const float d = put_f16(out, 0, search_six_bits(scale, importance ? sum_w : nullptr, scale_level));
    const float dmin = put_f16(out, 2, search_six_bits(min, importance ? sum_w : nullptr, min_level));
    put_scales(out + 4, scale_level, min_level);
    for (int e = 0; e < 256; e++) {
        const ScaleMin stored = scale_min(out + 4, e / 32);
        const float step = d * stored.scale;
        if (step != 0) level[e] = static_cast<uint8_t>(std::clamp(round_even((x[e] + dmin * stored.min) / step), 0, 15));
    }
    for (int i = 0; i < 128; i++) out[16 + i] = static_cast<uint8_t>(level[i / 32 * 64 + i % 32] | level[i / 32 * 64 + 32 + i % 32] << 4);
}

void encode_block_q6_K(const float* x, const float* importance, uint8_t* out) {
    uint8_t level[256];
    float scale[16];
    for (int t = 0; t < 16; t++) {
        float w[16];
        for (int i = 0; i < 16; i++) w[i] = importance ? importance[16 * t + i] : x[16 * t + i] * x[16 * t + i];
        scale[t] = search_symmetric(x + 16 * t, w, 16, 32, level + 16 * t);
    }
    const float peak = largest(scale, 16);
    if (std::fabs(peak) < kTiny) {
        std::memset(out, 0, 210);
        return;
    }
    const float inverse = -128 / peak, d = put_f16(out, 208, 1 / inverse);
    for (int t = 0; t < 16; t++) {
        const int stored = std::min(127, round_even(inverse * scale[t]));
        out[192 + t] = static_cast<uint8_t>(stored);
        const float step = d * static_cast<float>(static_cast<int8_t>(stored));
        for (int e = 16 * t; e < 16 * t + 16; e++)
            if (step != 0) level[e] = static_cast<uint8_t>(std::clamp(round_even(x[e] / step), -32, 31) + 32);
    }
    std::memset(out, 0, 192);
    for (int e = 0; e < 256; e++) {
        const auto [n, j, l] = place(e);
        out[64 * n + l + 32 * (j & 1)] |= static_cast<uint8_t>((level[e] & 15) << 4 * (j >> 1));
        out[128 + 32 * n + l] |= static_cast<uint8_t>((level[e] >> 4) << 2 * j);
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

void encode_q4_K(const float* x, size_t columns, const float* importance, uint8_t* out) {
    for (size_t at = 0; at < columns; at += 256, out += 144) encode_block_q4_K(x + at, importance ? importance + at : nullptr, out);
}

void encode_q6_K(const float* x, size_t columns, const float* importance, uint8_t* out) {
    for (size_t at = 0; at < columns; at += 256, out += 210) encode_block_q6_K(x + at, importance ? importance + at : nullptr, out);
}

}  // namespace lucebox::quants
