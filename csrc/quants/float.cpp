// Conversions between f32 and the 16-bit floats, the same on every machine: no instruction of the processor's own is used.
#include "quants/quants.h"
#include <bit>

namespace lucebox::quants {

float from_f16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t to_f16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (size >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65,520 and more
    if (size < 0x38800000) {                                              // subnormal: x + 0.5 has steps of 2^-24
        const float shifted = std::bit_cast<float>(size) + 0.5f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
    }
    return static_cast<uint16_t>(sign | ((size + 0xfff + ((size >> 13) & 1) - 0x38000000) >> 13));
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace lucebox::quants
