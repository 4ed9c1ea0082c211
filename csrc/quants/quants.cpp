// The decoder and the encoder of each type, and values from decoded blocks: one formula for all quantised types.
#include "error.h"
#include "quants/blocks.h"
#include <algorithm>
#include <cmath>

namespace lucebox::quants {
namespace {

using gguf::Type;

Decoder* decoder(Type type) {
    switch (type) {
        case Type::Q4_0: return decode_q4_0;
        case Type::Q4_1: return decode_q4_1;
        case Type::Q5_0: return decode_q5_0;
        case Type::Q5_1: return decode_q5_1;
        case Type::Q8_0: return decode_q8_0;
        case Type::MXFP4: return decode_mxfp4;
        case Type::Q2_K: return decode_q2_K;
        case Type::Q3_K: return decode_q3_K;
        case Type::Q4_K: return decode_q4_K;
        case Type::Q5_K: return decode_q5_K;
        case Type::Q6_K: return decode_q6_K;
        case Type::IQ1_S: return decode_iq1_s;
        case Type::IQ1_M: return decode_iq1_m;
        case Type::IQ2_XXS: return decode_iq2_xxs;
        case Type::IQ2_XS: return decode_iq2_xs;
        case Type::IQ2_S: return decode_iq2_s;
        case Type::IQ3_XXS: return decode_iq3_xxs;
        case Type::IQ3_S: return decode_iq3_s;
        case Type::IQ4_NL: return decode_iq4_nl;
        case Type::IQ4_XS: return decode_iq4_xs;
        default: break;
    }
    throw Error(Kind::kRequest, join("type ", gguf::type_info(type).name, " cannot be decoded; it is no type of a model's matrices"));
}

void dequantize_floats(Type type, const uint8_t* data, float* y, size_t n) {
    if (type == Type::F32) {
        std::memcpy(y, data, 4 * n);
        return;
    }
    for (size_t i = 0; i < n; i++, data += 2) y[i] = type == Type::F16 ? f16(data, 0) : from_bf16(u16(data, 0));
}

Encoder* encoder(Type type) {
    switch (type) {
        case Type::Q4_0: return encode_q4_0;
        case Type::Q8_0: return encode_q8_0;
        case Type::Q4_K: return encode_q4_K;
        case Type::Q6_K: return encode_q6_K;
        case Type::IQ4_XS: return encode_iq4_xs;
        default: break;
    }
    throw Error(Kind::kRequest, join("type ", gguf::type_info(type).name, " has no encoder here; f32, f16, bf16, q8_0, q4_0, q4_K, q6_K and iq4_xs have"));
}

void encode_floats(Type type, const float* x, size_t n, uint8_t* out) {
    if (type == Type::F32) {
        std::memcpy(out, x, 4 * n);
        return;
    }
    for (size_t i = 0; i < n; i++, out += 2) put_u16(out, 0, type == Type::F16 ? to_f16(x[i]) : to_bf16(x[i]));
}

}  // namespace

bool has_minimum(Type type) {
    return type == Type::Q4_1 || type == Type::Q5_1 || type == Type::Q2_K || type == Type::Q4_K || type == Type::Q5_K;
}

void decode_block(Type type, const uint8_t* block, Block& out) { decoder(type)(block, out); }

void dequantize(Type type, const uint8_t* data, float* y, size_t n) {
    if (gguf::is_float(type)) return dequantize_floats(type, data, y, n);
    Decoder* decode = decoder(type);
    const gguf::TypeInfo& info = gguf::type_info(type);
    const bool minimum = has_minimum(type);
    Block block{};
    for (const float* end = y + n; y < end; y += info.block, data += info.bytes) {
        decode(data, block);
        for (uint32_t e = 0; e < info.block; e++) {
            y[e] = (block.d * static_cast<float>(block.scale[e / 16])) * static_cast<float>(block.q[e]);
            if (!minimum) continue;
            if (info.block == 32) y[e] = y[e] + block.dmin;
            else y[e] = y[e] - block.dmin * static_cast<float>(block.min[e / 16]);
        }
    }
}

void quantize(Type type, const float* x, size_t n, size_t columns, const float* importance, uint8_t* out) {
    if (gguf::is_float(type)) return encode_floats(type, x, n, out);
    Encoder* encode = encoder(type);
    LUCE_CHECK(columns > 0 && columns % gguf::type_info(type).block == 0 && n % columns == 0, kRequest, n, " values in rows of ", columns,
               "; type ", gguf::type_info(type).name, " needs whole rows, each a multiple of ", gguf::type_info(type).block);
    const float* odd = std::find_if_not(x, x + n, [](float v) { return std::isfinite(v); });
    LUCE_CHECK(odd == x + n, kRequest, "value ", odd - x, " is not finite; type ", gguf::type_info(type).name, " cannot hold it");
    if (importance) {
        const float* bad = std::find_if_not(importance, importance + columns, [](float v) { return std::isfinite(v) && v >= 0; });
        LUCE_CHECK(bad == importance + columns, kRequest, "importance of column ", bad - importance, " is negative or not finite");
    }
    for (size_t at = 0; at < n; at += columns, out += gguf::row_bytes(type, columns)) encode(x + at, columns, importance, out);
}

}  // namespace lucebox::quants
