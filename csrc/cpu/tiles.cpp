#include "cpu/tiles.h"
#include <algorithm>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little);

namespace lucebox::cpu {

using gguf::Type;

namespace {

// A load packs tens of gigabytes: the loops below are written for the compiler's vectoriser and work on four bytes at a time. quants/ has the
// formulas to read.

uint32_t load32(const uint8_t* p) {
    uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
uint32_t load16(const uint8_t* p) { return p[0] | static_cast<uint32_t>(p[1]) << 8; }
uint32_t nibble(const uint8_t* p, int i) { return (p[i / 2] >> 4 * (i % 2)) & 15u; }
void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// Values 0 .. 31 of four-bit blocks: low nibbles, then high ones.
void nibbles(const uint8_t* qs, uint8_t* code) {
    for (int i = 0; i < 16; i++) code[i] = qs[i] & 15, code[16 + i] = qs[i] >> 4;
}
void fifth_bits(uint32_t high, uint8_t* code) {
    for (int i = 0; i < 32; i++) code[i] = static_cast<uint8_t>(code[i] | ((high >> i) & 1) << 4);
}

// The block's values as the unsigned numbers that its bits hold.
void codes(Type type, const uint8_t* b, uint8_t* code) {
    switch (type) {
        case Type::Q4_0:
        case Type::IQ4_NL: return nibbles(b + 2, code);
        case Type::Q4_1: return nibbles(b + 4, code);
        case Type::MXFP4: return nibbles(b + 1, code);
        case Type::Q5_0: return nibbles(b + 6, code), fifth_bits(load32(b + 2), code);
        case Type::Q5_1: return nibbles(b + 8, code), fifth_bits(load32(b + 4), code);
        case Type::Q8_0:
            for (int i = 0; i < 32; i++) code[i] = b[2 + i] ^ 0x80;
            return;
        case Type::IQ4_XS:
            for (int s = 0; s < 8; s++) nibbles(b + 8 + 16 * s, code + 32 * s);
            return;
        case Type::Q4_K:
        case Type::Q5_K: {
            const uint8_t *qs = b + (type == Type::Q4_K ? 16 : 48), *high = b + 16;
            for (int s = 0; s < 8; s++)
                for (int l = 0; l < 32; l++) {
                    const int low = (qs[32 * (s / 2) + l] >> 4 * (s % 2)) & 15;
                    code[32 * s + l] = static_cast<uint8_t>(type == Type::Q4_K ? low : low | ((high[l] >> s) & 1) << 4);
                }
            return;
        }
        case Type::Q2_K:
        case Type::Q3_K: {
            const uint8_t* qs = b + (type == Type::Q2_K ? 16 : 32);
            for (int n = 0; n < 2; n++)
                for (int j = 0; j < 4; j++)
                    for (int l = 0; l < 32; l++) {
                        const int low = (qs[32 * n + l] >> 2 * j) & 3;
                        code[128 * n + 32 * j + l] = static_cast<uint8_t>(type == Type::Q2_K ? low : low | ((b[l] >> (4 * n + j)) & 1) << 2);
                    }
            return;
        }
        default:  // Q6_K
            for (int n = 0; n < 2; n++)
                for (int j = 0; j < 4; j++)
                    for (int l = 0; l < 32; l++)
                        code[128 * n + 32 * j + l] =
                            static_cast<uint8_t>(((b[64 * n + 32 * (j & 1) + l] >> 4 * (j >> 1)) & 15) | ((b[128 + 32 * n + l] >> 2 * j) & 3) << 4);
    }
}

// Bits kShift and kShift + 1 (kBits = 2) or kShift of 32 codes, joined as a tile keeps them: those of code i at bit kBits * i of a byte.
template <int kBits, int kShift> void put_bits(const uint32_t (&c)[8], uint8_t* out) {
    constexpr int kVectors = 8 / kBits;  // that share one
    for (int first = 0; first < 8; first += kVectors) {
        uint32_t joined = 0;
        for (int i = 0; i < kVectors; i++) joined |= ((c[first + i] >> kShift) & (kBits == 2 ? 0x03030303 : 0x01010101)) << kBits * i;
        store32(out + 64 * (first / kVectors), joined);
    }
}

// Lane l of the vectors of 32 columns, four columns at a time.
void put_group(Type type, const uint8_t* code, int l, uint8_t* out) {
    uint32_t c[8];
    for (int i = 0; i < 8; i++) c[i] = load32(code + 4 * i);
    out += 4 * l;
    if (type == Type::Q8_0) {
        for (int i = 0; i < 8; i++) store32(out + 64 * i, c[i]);
        return;
    }
    if (type == Type::Q2_K || type == Type::Q3_K) {
        put_bits<2, 0>(c, out);
        if (type == Type::Q3_K) put_bits<1, 2>(c, out + 128);
        return;
    }
    for (int i = 0; i < 4; i++) store32(out + 64 * i, (c[i] & 0x0f0f0f0f) | (c[i + 4] & 0x0f0f0f0f) << 4);
    if (type == Type::Q5_0 || type == Type::Q5_1 || type == Type::Q5_K) put_bits<1, 4>(c, out + 256);
    else if (type == Type::Q6_K) put_bits<2, 4>(c, out + 256);
}

// 32 columns of a type with a grid. Signs and minus are per 8 columns, codes of scales (the scale is 1 + 2 code) per 16.
struct Group {
    uint32_t index[8], signs[4], scale[2];
    bool minus[4];
};

// Seven signs are stored; the eighth makes the number of minus signs even.
uint32_t eight_signs(uint32_t seven) { return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7; }

Group read_group(Type type, const uint8_t* b, int g) {
    Group r{};
    const uint32_t w = type == Type::IQ2_XXS ? load32(b + 6 + 8 * g) : type == Type::IQ3_XXS ? load32(b + 66 + 4 * g) : type == Type::IQ1_S ? load16(b + 34 + 2 * g) : 0;
    for (int k = 0; k < 4; k++) {
        const int o = 4 * g + k;
        switch (type) {
            case Type::IQ1_S: r.index[k] = b[2 + o] | ((w >> 3 * k) & 7) << 8, r.minus[k] = w & 0x8000; break;
            case Type::IQ1_M: r.index[k] = b[o] | (nibble(b + 32, o) & 7) << 8, r.minus[k] = nibble(b + 32, o) & 8; break;
            case Type::IQ2_XXS: r.index[k] = b[2 + 8 * g + k], r.signs[k] = eight_signs((w >> 7 * k) & 127); break;
            case Type::IQ2_XS: r.index[k] = load16(b + 2 + 2 * o) & 511, r.signs[k] = eight_signs(load16(b + 2 + 2 * o) >> 9); break;
            case Type::IQ2_S: r.index[k] = b[2 + o] | ((b[66 + g] >> 2 * k) & 3u) << 8, r.signs[k] = b[34 + o]; break;
            default:
                for (int i = 2 * k; i < 2 * k + 2; i++) r.index[i] = b[2 + 8 * g + i] | (type == Type::IQ3_S ? ((b[66 + g] >> i) & 1u) << 8 : 0);
                r.signs[k] = type == Type::IQ3_S ? b[74 + o] : eight_signs((w >> 7 * k) & 127);
        }
    }
    for (int h = 0; h < 2; h++) {
        const int t = 2 * g + h;
        switch (type) {
            case Type::IQ1_S: r.scale[h] = (w >> 12) & 7; break;
            case Type::IQ1_M: r.scale[h] = (load16(b + 48 + 2 * (t / 4)) >> 3 * (t % 4)) & 7; break;
            case Type::IQ2_XS: r.scale[h] = nibble(b + 66, t); break;
            case Type::IQ2_S: r.scale[h] = nibble(b + 74, t); break;
            case Type::IQ3_S: r.scale[h] = nibble(b + 106, g); break;
            default: r.scale[h] = w >> 28;
        }
    }
    return r;
}

// Bits of two lanes share a byte, the even one comes first.
void put_nibble(uint8_t* bits, int l, uint32_t value) { bits[l / 2] = static_cast<uint8_t>(l % 2 ? bits[l / 2] | value << 4 : value); }

void put_grid_group(const TileForm& form, const Group& r, int g, int l, uint8_t* quants) {
    for (int h = 0; h < form.index_vectors(); h++) {
        const uint32_t* index = r.index + 4 * h;
        uint32_t low = 0;
        for (int i = 0; i < 4; i++) low |= (index[i] & 255) << 8 * i;
        store32(quants + form.group_bytes * g + 64 * h + 4 * l, low);
        for (int bit = 8; bit < form.index_bits; bit++) {
            uint32_t four = 0;
            for (int i = 0; i < 4; i++) four |= ((index[i] >> bit) & 1) << i;
            put_nibble(quants + form.bits_at(g, h) + 8 * (bit - 8), l, four);
        }
    }
    if (form.index_bits == 11) {
        put_nibble(quants + form.signs_at(g, 8), l, static_cast<uint32_t>(r.minus[0] | r.minus[1] << 1 | r.minus[2] << 2 | r.minus[3] << 3));
    } else {
        for (int v = 0; v < 8; v++) put_nibble(quants + form.signs_at(g, 64) + 8 * v, l, (r.signs[v / 2] >> 4 * (v % 2)) & 15);
    }
    quants[form.scales_at() + 16 * g + l] = static_cast<uint8_t>(form.halves ? r.scale[0] | r.scale[1] << 4 : 1 + 2 * r.scale[0]);
}

// Integer scales of a 256-block, lane l; minimums behind them.
void put_scales(Type type, const uint8_t* b, int l, uint8_t* scales, uint8_t* minimums) {
    const auto put = [&](int s, uint32_t value) { scales[16 * s + l] = static_cast<uint8_t>(value); };
    const uint8_t* c = b + 4;
    for (int s = 0; s < 16; s++) {
        if (type == Type::Q6_K) put(s, b[192 + s]);
        else if (type == Type::Q2_K) put(s, b[s]);
        else if (type == Type::Q3_K) put(s, ((s < 8 ? b[96 + s] & 15u : b[88 + s] >> 4) | ((b[104 + s % 4] >> 2 * (s / 4)) & 3u) << 4) - 32);
        else if (s >= 8) return;
        else if (type == Type::IQ4_XS) put(s, (nibble(b + 4, s) | ((load16(b + 2) >> 2 * s) & 3) << 4) - 32);
        else  // Q4_K, Q5_K: six bits each, the last four with their high bits apart
            put(s, s < 4 ? c[s] & 63u : (c[s + 4] & 15u) | (c[s - 4] >> 6) << 4),
                minimums[16 * s + l] = static_cast<uint8_t>(s < 4 ? c[s + 4] & 63 : (c[s + 4] >> 4) | (c[s] >> 6) << 4);
    }
}

// d and dmin.
void put_floats(Type type, const TileForm& form, const uint8_t* b, int l, uint8_t* scales) {
    if (type == Type::MXFP4) {
        scales[l] = b[0];
        return;
    }
    const int d_at = type == Type::Q2_K ? 80 : type == Type::Q3_K ? 108 : type == Type::Q6_K ? 208 : 0;
    uint16_t d = static_cast<uint16_t>(load16(b + d_at));
    if (type == Type::IQ1_M) d = static_cast<uint16_t>(load16(b + 48) >> 12 | (load16(b + 50) >> 8 & 0xF0) | (load16(b + 52) >> 4 & 0xF00) | (load16(b + 54) & 0xF000));
    std::memcpy(scales + 2 * l, &d, 2);
    if (form.minimum) std::memcpy(scales + 32 + 2 * l, b + d_at + 2, 2);
}

void put_block(Type type, const TileForm& form, const uint8_t* block, int l, uint8_t* quants, uint8_t* scales) {
    put_floats(type, form, block, l, scales);
    if (form.index_bits) {
        for (int g = 0; g < 8; g++) put_grid_group(form, read_group(type, block, g), g, l, quants);
        return;
    }
    alignas(32) uint8_t code[256];
    codes(type, block, code);
    for (int g = 0; g < form.block / 32; g++) put_group(type, code + 32 * g, l, quants + g * form.group_bytes);
    if (form.block == 256) put_scales(type, block, l, quants + form.scales_at(), quants + form.minimums_at());
}

}  // namespace

uint64_t tiles_bytes(Type type, uint64_t rows, uint64_t columns) {
    const TileForm form = tile_form(type);
    if (!form.block) return 0;
    return (rows + kLanes - 1) / kLanes * (columns / static_cast<uint64_t>(form.block)) * static_cast<uint64_t>(form.quant_bytes + form.scale_bytes);
}

void pack_tiles(const ops::Weight& w, int first, int last, uint8_t* packed) {
    const TileForm form = tile_form(w.type);
    const size_t blocks = static_cast<size_t>(w.columns / form.block), tiles = (static_cast<size_t>(w.rows) + kLanes - 1) / kLanes;
    const size_t quant_bytes = static_cast<size_t>(form.quant_bytes), scale_bytes = static_cast<size_t>(form.scale_bytes);
    const size_t block_bytes = gguf::type_info(w.type).bytes;
    for (size_t t = static_cast<size_t>(first / kLanes); t < (static_cast<size_t>(last) + kLanes - 1) / kLanes; t++)
        for (size_t b = 0; b < blocks; b++) {
            uint8_t* quants = packed + (t * blocks + b) * quant_bytes;
            uint8_t* scales = packed + tiles * blocks * quant_bytes + (t * blocks + b) * scale_bytes;
            const size_t lanes = std::min<size_t>(kLanes, static_cast<size_t>(w.rows) - t * kLanes);
            if (lanes < kLanes) {  // outputs that a last tile lacks are 0
                std::memset(quants, 0, quant_bytes);
                std::memset(scales, 0, scale_bytes);
            }
            for (size_t l = 0; l < lanes; l++)
                put_block(w.type, form, w.data + ((t * kLanes + l) * blocks + b) * block_bytes, static_cast<int>(l), quants, scales);
        }
}

}  // namespace lucebox::cpu
