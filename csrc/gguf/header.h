// The header of one GGUF file, parsed and checked from bytes in memory. Inside csrc/gguf and the fuzz target only.
#pragma once
#include "gguf/reader.h"

namespace lucebox::gguf {

struct Header {
    uint32_t version = 0;
    uint64_t alignment = 0;
    std::vector<std::string> keys;  // in file order
    std::map<std::string, Value, std::less<>> values;
    std::vector<Tensor> tensors;    // data points into the bytes given; part is 0
};

// Throws Error(kGGUF). Takes memory in proportion to the bytes that are there, never to a count that the file only claims.
Header parse_header(const std::string& path, const uint8_t* bytes, uint64_t n_bytes);

// Throws Error(kGGUF) with the facts file, field and offset.
[[noreturn]] void fail_at(const std::string& path, std::string_view field, uint64_t offset, const std::string& text);

// Bytes from a file as text for a message: at most 80 of them, what is no printable ASCII as \xNN.
std::string printable(std::string_view bytes);

std::string_view value_type_name(ValueType type);

}  // namespace lucebox::gguf
