// The table of tensor types: id, name, block and bytes of every ggml type, and whether the ops can multiply with it.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lucebox::gguf {

enum class Type : uint32_t {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q8_1 = 9, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13,
    Q6_K = 14, Q8_K = 15, IQ2_XXS = 16, IQ2_XS = 17, IQ3_XXS = 18, IQ1_S = 19, IQ4_NL = 20, IQ3_S = 21, IQ2_S = 22, IQ4_XS = 23,
    I8 = 24, I16 = 25, I32 = 26, I64 = 27, F64 = 28, IQ1_M = 29, BF16 = 30, TQ1_0 = 34, TQ2_0 = 35, MXFP4 = 39, NVFP4 = 40,
    Q1_0 = 41, Q2_0 = 42,
};

struct TypeInfo {
    Type type;
    std::string_view name;  // as the tools print it: "iq4_xs", "q4_K"
    uint32_t block;         // values a block
    uint32_t bytes;         // bytes a block
    bool matrix;            // the ops multiply with it and look it up; the others are read and listed only
};

inline constexpr std::array kTypes = {
    TypeInfo{Type::F32, "f32", 1, 4, true},
    TypeInfo{Type::F16, "f16", 1, 2, true},
    TypeInfo{Type::Q4_0, "q4_0", 32, 18, true},
    TypeInfo{Type::Q4_1, "q4_1", 32, 20, true},
    TypeInfo{Type::Q5_0, "q5_0", 32, 22, true},
    TypeInfo{Type::Q5_1, "q5_1", 32, 24, true},
    TypeInfo{Type::Q8_0, "q8_0", 32, 34, true},
    TypeInfo{Type::Q8_1, "q8_1", 32, 36, false},
    TypeInfo{Type::Q2_K, "q2_K", 256, 84, true},
    TypeInfo{Type::Q3_K, "q3_K", 256, 110, true},
    TypeInfo{Type::Q4_K, "q4_K", 256, 144, true},
    TypeInfo{Type::Q5_K, "q5_K", 256, 176, true},
    TypeInfo{Type::Q6_K, "q6_K", 256, 210, true},
    TypeInfo{Type::Q8_K, "q8_K", 256, 292, false},
    TypeInfo{Type::IQ2_XXS, "iq2_xxs", 256, 66, true},
    TypeInfo{Type::IQ2_XS, "iq2_xs", 256, 74, true},
    TypeInfo{Type::IQ3_XXS, "iq3_xxs", 256, 98, true},
    TypeInfo{Type::IQ1_S, "iq1_s", 256, 50, true},
    TypeInfo{Type::IQ4_NL, "iq4_nl", 32, 18, true},
    TypeInfo{Type::IQ3_S, "iq3_s", 256, 110, true},
    TypeInfo{Type::IQ2_S, "iq2_s", 256, 82, true},
    TypeInfo{Type::IQ4_XS, "iq4_xs", 256, 136, true},
    TypeInfo{Type::I8, "i8", 1, 1, false},
    TypeInfo{Type::I16, "i16", 1, 2, false},
    TypeInfo{Type::I32, "i32", 1, 4, false},
    TypeInfo{Type::I64, "i64", 1, 8, false},
    TypeInfo{Type::F64, "f64", 1, 8, false},
    TypeInfo{Type::IQ1_M, "iq1_m", 256, 56, true},
    TypeInfo{Type::BF16, "bf16", 1, 2, true},
    TypeInfo{Type::TQ1_0, "tq1_0", 256, 54, false},
    TypeInfo{Type::TQ2_0, "tq2_0", 256, 66, false},
    TypeInfo{Type::MXFP4, "mxfp4", 32, 17, true},
    TypeInfo{Type::NVFP4, "nvfp4", 64, 36, false},
    TypeInfo{Type::Q1_0, "q1_0", 128, 18, false},
    TypeInfo{Type::Q2_0, "q2_0", 64, 18, false},
};

// The entry of an id read from a file; null if the id is no ggml type or was removed.
constexpr const TypeInfo* find_type(uint32_t id) {
    for (const TypeInfo& info : kTypes)
        if (static_cast<uint32_t>(info.type) == id) return &info;
    return nullptr;
}
constexpr const TypeInfo& type_info(Type type) { return *find_type(static_cast<uint32_t>(type)); }

// Bytes of a row of `columns` values; columns is a multiple of the block.
constexpr uint64_t row_bytes(Type type, uint64_t columns) { return columns / type_info(type).block * type_info(type).bytes; }
constexpr bool is_float(Type type) { return type == Type::F32 || type == Type::F16 || type == Type::BF16; }

}  // namespace lucebox::gguf
