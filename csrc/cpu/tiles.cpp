#include "cpu/tiles.h"
#include "quants/quants.h"
#include <algorithm>
#include <cstring>

namespace lucebox::cpu {

using gguf::Type;

namespace {

// The block's values as the unsigned numbers that its bits hold.
void codes(Type type, const uint8_t* block, const quants::Block& b, uint8_t* code) {
    const TileForm form = tile_form(type);
    const int levels_at = type == Type::IQ4_XS ? 8 : type == Type::IQ4_NL ? 2 : type == Type::MXFP4 ? 1 : 0;  // where indices of a table start
    for (int e = 0; e < form.block; e++) {
        if (levels_at) code[e] = (block[levels_at + 16 * (e / 32) + e % 16] >> 4 * (e % 32 / 16)) & 15;
        else code[e] = static_cast<uint8_t>(b.q[e] + form.offset);
    }
}

// Lane l of the vectors of 32 columns.
void put_group(Type type, const uint8_t* code, int l, uint8_t* out) {
    if (type == Type::Q8_0) {
        for (int e = 0; e < 32; e++) out[e / 4 * 64 + 4 * l + e % 4] = code[e];
        return;
    }
    for (int e = 0; e < 16; e++) out[e / 4 * 64 + 4 * l + e % 4] = static_cast<uint8_t>((code[e] & 15) | (code[e + 16] & 15) << 4);
    const bool five = type == Type::Q5_0 || type == Type::Q5_1 || type == Type::Q5_K;
    for (int j = 0; j < 4 && (five || type == Type::Q6_K); j++) {
        int bits[2] = {};
        for (int i = 0; i < 8; i++) {
            const int high = code[4 * i + j] >> 4;
            if (five) bits[0] |= high << i;
            else bits[i / 4] |= high << 2 * (i % 4);
        }
        for (int v = 0; v < (five ? 1 : 2); v++) out[256 + 64 * v + 4 * l + j] = static_cast<uint8_t>(bits[v]);
    }
}

// IQ3_S keeps its grid indices and signs. l is the lane, g the 32 columns.
void put_iq3_s(const uint8_t* block, int l, int g, uint8_t* quants) {
    for (int i = 0; i < 8; i++) {
        const int p = 8 * g + i, signs = (block[74 + p / 2] >> 4 * (p % 2)) & 15, high = (block[66 + g] >> i) & 1, place = 4 * l + i % 4;
        quants[128 * g + 64 * (i / 4) + place] = block[2 + p];
        quants[kIq3High + 16 * g + 8 * (i / 4) + place / 8] |= static_cast<uint8_t>(high << place % 8);
        quants[kIq3Signs + 64 * g + 8 * i + l / 2] |= static_cast<uint8_t>(signs << 4 * (l % 2));
    }
}

void put_block(Type type, const uint8_t* block, int l, uint8_t* quants, uint8_t* scales) {
    const TileForm form = tile_form(type);
    quants::Block b;
    quants::decode_block(type, block, b);
    uint8_t code[256];
    if (type != Type::IQ3_S) codes(type, block, b, code);
    for (int g = 0; g < form.block / 32; g++) {
        uint8_t* out = quants + g * form.group_bytes;
        if (type == Type::IQ3_S) put_iq3_s(block, l, g, quants);
        else put_group(type, code + 32 * g, l, out);
    }
    if (form.block == 256) {
        for (int s = 0; s < (form.halves ? 16 : 8); s++) quants[form.scales_at() + 16 * s + l] = static_cast<uint8_t>(b.scale[form.halves ? s : 2 * s]);
        for (int s = 0; s < 8 && form.minimum; s++) quants[form.minimums_at() + 16 * s + l] = b.min[2 * s];
    }
    if (type == Type::MXFP4) {
        scales[l] = block[0];
        return;
    }
    const int d_at = type == Type::Q6_K ? 208 : 0;
    std::memcpy(scales + 2 * l, block + d_at, 2);
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
            std::memset(quants, 0, quant_bytes);  // outputs that a last tile lacks are 0
            std::memset(scales, 0, scale_bytes);
            for (size_t l = 0; l < kLanes && t * kLanes + l < static_cast<size_t>(w.rows); l++)
                put_block(w.type, w.data + ((t * kLanes + l) * blocks + b) * block_bytes, static_cast<int>(l), quants, scales);
        }
}

}  // namespace lucebox::cpu
