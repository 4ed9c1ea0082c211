#include "hip/runtime/pack.h"
#include "error.h"
#include "quants/quants.h"
#include <algorithm>
#include <cstring>

namespace lucebox::hip {

namespace {

using gguf::Type;
using quants::Block;

constexpr int kRecordRows = 32;

// One output's block into its record.
struct Place {
    uint8_t* record;
    int row;

    // v[32] of a group; planes as matmul_types.h says.
    template <class V> void nibbles(int at, const V& v) const {
        for (int k = 0; k < 32; k++) record[at + row * 16 + k % 16] |= static_cast<uint8_t>((v(k) & 15) << 4 * (k / 16));
    }
    template <class V> void bits(int at, const V& v) const {
        for (int k = 0; k < 32; k++) record[at + row * 4 + k % 4] |= static_cast<uint8_t>((v(k) & 1) << k / 4);
    }
    template <class V> void pairs(int at, const V& v) const {
        for (int k = 0; k < 32; k++) record[at + row * 8 + k / 16 * 4 + k % 4] |= static_cast<uint8_t>((v(k) & 3) << 2 * (k % 16 / 4));
    }
    // n bytes a row, as they are.
    void bytes(int at, int n, const void* from) const { memcpy(record + at + row * n, from, static_cast<size_t>(n)); }
};

int raw_nibble(const uint8_t* q, int k) { return (q[k % 16] >> 4 * (k / 16)) & 15; }
int raw_bit(const uint8_t* bits, int k) { return (bits[k / 8] >> k % 8) & 1; }

void pack_32(Type type, const Place& p, const uint8_t* b, const Block& block) {
    const auto q = [&block](int offset) { return [&block, offset](int k) { return block.q[k] + offset; }; };
    const auto fifth = [&block](int offset) { return [&block, offset](int k) { return (block.q[k] + offset) >> 4; }; };
    switch (type) {
        case Type::Q4_0: return p.nibbles(0, q(8)), p.bytes(512, 2, b);
        case Type::Q4_1: return p.nibbles(0, q(0)), p.bytes(512, 4, b);
        case Type::Q5_0: return p.nibbles(0, q(16)), p.bits(512, fifth(16)), p.bytes(640, 2, b);
        case Type::Q5_1: return p.nibbles(0, q(0)), p.bits(512, fifth(0)), p.bytes(640, 4, b);
        case Type::IQ4_NL: return p.nibbles(0, [b](int k) { return raw_nibble(b + 2, k); }), p.bytes(512, 2, b);
        case Type::MXFP4: return p.nibbles(0, [b](int k) { return raw_nibble(b + 1, k); }), p.bytes(512, 1, b);
        default: break;  // Q8_0
    }
    for (int k = 0; k < 32; k++) {
        const int chunk = k % 16 / 4;
        p.record[chunk / 2 * 512 + p.row * 16 + chunk % 2 * 8 + k / 16 * 4 + k % 4] = static_cast<uint8_t>(block.q[k]);
    }
    p.bytes(1024, 2, b);
}

void pack_k_scales(Type type, const Place& p, const uint8_t* b, const Block& block) {
    switch (type) {
        case Type::IQ4_XS: return p.bytes(4096, 8, b);
        case Type::Q4_K: return p.bytes(4096, 16, b);
        case Type::Q5_K: return p.bytes(5120, 16, b);
        case Type::Q6_K: return p.bytes(6144, 16, b + 192), p.bytes(6656, 2, b + 208);
        case Type::Q3_K: return p.bytes(3072, 16, block.scale), p.bytes(3584, 2, b + 108);
        default: return p.bytes(2048, 16, b), p.bytes(2560, 4, b + 80);  // Q2_K
    }
}
void pack_k(Type type, const Place& p, const uint8_t* b, const Block& block) {
    for (int g = 0; g < 8; g++) {
        const auto q = [&block, g](int offset, int shift) {
            return [&block, g, offset, shift](int k) { return (block.q[32 * g + k] + offset) >> shift; };
        };
        switch (type) {
            case Type::IQ4_XS: p.nibbles(512 * g, [b, g](int k) { return raw_nibble(b + 8 + 16 * g, k); }); break;
            case Type::Q4_K: p.nibbles(512 * g, q(0, 0)); break;
            case Type::Q5_K: p.nibbles(512 * g, q(0, 0)), p.bits(4096 + 128 * g, q(0, 4)); break;
            case Type::Q6_K: p.nibbles(512 * g, q(32, 0)), p.pairs(4096 + 256 * g, q(32, 4)); break;
            case Type::Q3_K: p.pairs(256 * g, q(4, 0)), p.bits(2048 + 128 * g, q(4, 2)); break;
            default: p.pairs(256 * g, q(0, 0)); break;  // Q2_K
        }
    }
    pack_k_scales(type, p, b, block);
}

void pack_grid(Type type, const Place& p, const uint8_t* b) {
    for (int g = 0; g < 8; g++) {
        switch (type) {
            case Type::IQ3_S:
                p.bytes(256 * g, 8, b + 2 + 8 * g), p.bits(2048 + 128 * g, [b, g](int k) { return raw_bit(b + 74 + 4 * g, k); });
                break;
            case Type::IQ3_XXS: p.bytes(256 * g, 8, b + 2 + 8 * g), p.bytes(2048 + 128 * g, 4, b + 66 + 4 * g); break;
            case Type::IQ2_XXS: p.bytes(128 * g, 4, b + 2 + 8 * g), p.bytes(1024 + 128 * g, 4, b + 6 + 8 * g); break;
            case Type::IQ2_XS: p.bytes(256 * g, 8, b + 2 + 8 * g); break;
            case Type::IQ2_S:
                p.bytes(128 * g, 4, b + 2 + 4 * g), p.bits(1024 + 128 * g, [b, g](int k) { return raw_bit(b + 34 + 4 * g, k); });
                break;
            case Type::IQ1_S: p.bytes(128 * g, 4, b + 2 + 4 * g); break;
            default: p.bytes(128 * g, 4, b + 4 * g); break;  // IQ1_M
        }
    }
    switch (type) {
        case Type::IQ3_S: {
            const uint8_t row[8] = {b[0], b[1], 0, 0, b[106], b[107], b[108], b[109]};
            return p.bytes(3072, 8, b + 66), p.bytes(3328, 8, row);
        }
        case Type::IQ3_XXS: return p.bytes(3072, 2, b);
        case Type::IQ2_XXS: return p.bytes(2048, 2, b);
        case Type::IQ2_XS: return p.bytes(2048, 8, b + 66), p.bytes(2304, 2, b);
        case Type::IQ2_S: return p.bytes(2048, 8, b + 66), p.bytes(2304, 8, b + 74), p.bytes(2560, 2, b);
        case Type::IQ1_S: return p.bytes(1024, 16, b + 34), p.bytes(1536, 2, b);
        default: return p.bytes(1024, 16, b + 32), p.bytes(1536, 8, b + 48);  // IQ1_M
    }
}

// Bytes of a record of 32 outputs and one block.
int record_bytes(Type type) {
    switch (type) {
        case Type::Q3_K: return 3648;   // scales as int8
        case Type::IQ3_S: return 3584;  // scales in words
        default: return 32 * static_cast<int>(gguf::type_info(type).bytes);
    }
}

}  // namespace

uint64_t packed_bytes(Type type, uint64_t rows, uint64_t columns) {
    if (gguf::is_float(type)) return rows * gguf::row_bytes(type, columns);
    return (rows + kRecordRows - 1) / kRecordRows * (columns / gguf::type_info(type).block) * static_cast<uint64_t>(record_bytes(type));
}

void pack(Type type, const uint8_t* data, int rows, int columns, int first, int last, uint8_t* out) {
    const uint64_t row_bytes = gguf::row_bytes(type, static_cast<uint64_t>(columns));
    const auto [id, name, block, block_bytes, matrix] = gguf::type_info(type);
    last = std::min(last, rows);
    if (gguf::is_float(type)) {
        memcpy(out, data + static_cast<uint64_t>(first) * row_bytes, static_cast<uint64_t>(last - first) * row_bytes);
        return;
    }
    const uint64_t blocks = static_cast<uint64_t>(columns) / block, record = static_cast<uint64_t>(record_bytes(type));
    memset(out, 0, packed_bytes(type, static_cast<uint64_t>(last - first), static_cast<uint64_t>(columns)));
    const bool grid = type == Type::IQ3_S || type == Type::IQ3_XXS || type == Type::IQ2_XXS || type == Type::IQ2_XS || type == Type::IQ2_S ||
                      type == Type::IQ1_S || type == Type::IQ1_M;
    for (int n = first; n < last; n++)
        for (uint64_t i = 0; i < blocks; i++) {
            const Place place{out + (static_cast<uint64_t>((n - first) / kRecordRows) * blocks + i) * record, n % kRecordRows};
            const uint8_t* from = data + static_cast<uint64_t>(n) * row_bytes + i * block_bytes;
            if (grid) {
                pack_grid(type, place, from);
                continue;
            }
            Block decoded;
            quants::decode_block(type, from, decoded);
            if (block == 32) pack_32(type, place, from, decoded);
            else pack_k(type, place, from, decoded);
        }
}

namespace {
size_t group_at(int row, int columns, int group) {
    return (static_cast<size_t>(row / kTileRows) * static_cast<size_t>(columns / 32) + static_cast<size_t>(group)) * kTileRows;
}
size_t byte_at(int row, int columns, int k) {
    const int in = k % 32;
    return (group_at(row, columns, k / 32) + static_cast<size_t>(row % kTileRows)) * 32 + static_cast<size_t>(in % 16 / 4 * 8 + in / 16 * 4 + in % 4);
}
}  // namespace

void unpack_rows(const uint8_t* q, const float* d, const float* sums, int rows, int columns, int8_t* q_out, float* d_out, int32_t* sum_out) {
    for (int r = 0; r < rows; r++) {
        const size_t at = static_cast<size_t>(r) * static_cast<size_t>(columns);
        for (int k = 0; k < columns; k++) q_out[at + static_cast<size_t>(k)] = static_cast<int8_t>(q[byte_at(r, columns, k)]);
        for (int g = 0; g < columns / 32; g++) {
            const size_t from = group_at(r, columns, g), to = at / 32 + static_cast<size_t>(g);
            int16_t halves[2];
            memcpy(halves, sums + 2 * from + kTileRows + static_cast<size_t>(r % kTileRows), 4);
            d_out[to] = d[from + static_cast<size_t>(r % kTileRows)];
            sum_out[2 * to] = halves[0], sum_out[2 * to + 1] = halves[1];
        }
    }
}

void pack_rows(const int8_t* q, const float* d, const int32_t* sum, int rows, int columns, uint8_t* q_out, float* d_out, float* sums_out) {
    for (int r = 0; r < rows; r++) {
        const size_t at = static_cast<size_t>(r) * static_cast<size_t>(columns);
        for (int k = 0; k < columns; k++) q_out[byte_at(r, columns, k)] = static_cast<uint8_t>(q[at + static_cast<size_t>(k)]);
        for (int g = 0; g < columns / 32; g++) {
            const size_t to = group_at(r, columns, g), from = at / 32 + static_cast<size_t>(g), in = static_cast<size_t>(r % kTileRows);
            const int16_t halves[2] = {static_cast<int16_t>(sum[2 * from]), static_cast<int16_t>(sum[2 * from + 1])};
            d_out[to + in] = d[from];
            sums_out[2 * to + in] = d[from] * static_cast<float>(halves[0] + halves[1]);
            memcpy(sums_out + 2 * to + kTileRows + in, halves, 4);
        }
    }
}

}  // namespace lucebox::hip
