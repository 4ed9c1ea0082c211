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
        default:  // Q6_K
            for (int n = 0; n < 2; n++)
                for (int j = 0; j < 4; j++)
                    for (int l = 0; l < 32; l++)
                        code[128 * n + 32 * j + l] =
                            static_cast<uint8_t>(((b[64 * n + 32 * (j & 1) + l] >> 4 * (j >> 1)) & 15) | ((b[128 + 32 * n + l] >> 2 * j) & 3) << 4);
    }
}

// Lane l of the vectors of 32 columns, four columns at a time.
void put_group(Type type, const uint8_t* code, int l, uint8_t* out) {
    uint32_t c[8], five = 0, six[2] = {};
    for (int i = 0; i < 8; i++) c[i] = load32(code + 4 * i);
    out += 4 * l;
    if (type == Type::Q8_0) {
        for (int i = 0; i < 8; i++) store32(out + 64 * i, c[i]);
        return;
    }
    for (int i = 0; i < 4; i++) store32(out + 64 * i, (c[i] & 0x0f0f0f0f) | (c[i + 4] & 0x0f0f0f0f) << 4);
    if (type == Type::Q5_0 || type == Type::Q5_1 || type == Type::Q5_K) {
        for (int i = 0; i < 8; i++) five |= ((c[i] >> 4) & 0x01010101) << i;
        store32(out + 256, five);
    } else if (type == Type::Q6_K) {
        for (int i = 0; i < 8; i++) six[i / 4] |= ((c[i] >> 4) & 0x03030303) << 2 * (i % 4);
        store32(out + 256, six[0]), store32(out + 320, six[1]);
    }
}

// IQ3_S keeps its grid indices and signs. l is the lane, g the 32 columns; bits of two lanes share a byte.
void put_iq3_s(const uint8_t* block, int l, int g, uint8_t* quants) {
    const auto join = [l](uint8_t* at, int nibble) { at[l / 2] = static_cast<uint8_t>(l % 2 ? at[l / 2] | nibble << 4 : nibble); };
    for (int h = 0; h < 2; h++) {
        store32(quants + 128 * g + 64 * h + 4 * l, load32(block + 2 + 8 * g + 4 * h));
        join(quants + kIq3High + 16 * g + 8 * h, (block[66 + g] >> 4 * h) & 15);
    }
    for (int i = 0; i < 8; i++) join(quants + kIq3Signs + 64 * g + 8 * i, (block[74 + 4 * g + i / 2] >> 4 * (i % 2)) & 15);
}

// Integer scales of a 256-block, lane l; minimums behind them.
void put_scales(Type type, const uint8_t* b, int l, uint8_t* scales, uint8_t* minimums) {
    for (int s = 0; s < (type == Type::Q6_K ? 16 : 8); s++) {
        uint8_t& scale = scales[16 * s + l];
        if (type == Type::Q6_K) {
            scale = b[192 + s];
        } else if (type == Type::IQ3_S) {
            scale = static_cast<uint8_t>(1 + 2 * ((b[106 + s / 2] >> 4 * (s % 2)) & 15));
        } else if (type == Type::IQ4_XS) {
            scale = static_cast<uint8_t>((((b[4 + s / 2] >> 4 * (s % 2)) & 15) | ((load32(b) >> (16 + 2 * s)) & 3) << 4) - 32);
        } else {  // Q4_K, Q5_K: six bits each, the last four with their high bits apart
            const uint8_t* c = b + 4;
            scale = static_cast<uint8_t>(s < 4 ? c[s] & 63 : (c[s + 4] & 15) | (c[s - 4] >> 6) << 4);
            minimums[16 * s + l] = static_cast<uint8_t>(s < 4 ? c[s + 4] & 63 : (c[s + 4] >> 4) | (c[s] >> 6) << 4);
        }
    }
}

void put_block(Type type, const TileForm& form, const uint8_t* block, int l, uint8_t* quants, uint8_t* scales) {
    alignas(32) uint8_t code[256];
    if (type != Type::IQ3_S) codes(type, block, code);
    for (int g = 0; g < form.block / 32; g++) {
        if (type == Type::IQ3_S) put_iq3_s(block, l, g, quants);
        else put_group(type, code + 32 * g, l, quants + g * form.group_bytes);
    }
    if (form.block == 256) put_scales(type, block, l, quants + form.scales_at(), quants + form.minimums_at());
    if (type == Type::MXFP4) {
        scales[l] = block[0];
        return;
    }
    std::memcpy(scales + 2 * l, block + (type == Type::Q6_K ? 208 : 0), 2);
    if (form.minimum) std::memcpy(scales + 32 + 2 * l, block + 2, 2);
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
