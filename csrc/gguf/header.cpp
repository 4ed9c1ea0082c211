#include "gguf/header.h"
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace lucebox::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian and read in place");

constexpr uint64_t kMostHeaderBytes = 128u << 20;  // the largest in use have 15 MB; bounds the memory a header can take
constexpr uint64_t kMostKeyBytes = 65535;
constexpr uint64_t kMostNameBytes = 63;
constexpr uint64_t kMostDims = 4;
constexpr uint64_t kLeastPairBytes = 8 + 1 + 4 + 1;      // key length, key, type, value
constexpr uint64_t kLeastInfoBytes = 8 + 0 + 4 + 4 + 8;  // name length, name, dims, type, offset
constexpr uint64_t kTop = uint64_t{1} << 63;             // sizes and counts stay below, as the format's signed readers need

constexpr std::string_view kValueTypeNames[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "array", "u64", "i64", "f64"};

class Cursor {
public:
    Cursor(const std::string& path, const uint8_t* bytes, uint64_t n_bytes)
        : path_(path), bytes_(bytes), n_bytes_(std::min(n_bytes, kMostHeaderBytes)), cut_(n_bytes > kMostHeaderBytes) {}

    std::string field = "header";  // what is being read, for messages
    uint64_t at() const { return at_; }

    template <class T> T number() {
        need(1, sizeof(T));
        T x;
        std::memcpy(&x, bytes_ + at_, sizeof x);
        at_ += sizeof x;
        return x;
    }
    template <class Stored, class Held> std::vector<Held> numbers(uint64_t count) {
        need(count, sizeof(Stored));
        std::vector<Held> out(count);
        for (uint64_t i = 0; i < count; i++) out[i] = static_cast<Held>(number<Stored>());
        return out;
    }
    std::string text(uint64_t least, uint64_t most) {
        const auto count = number<uint64_t>();
        need(count, 1);
        if (count < least || count > most) fail(join("is a string of ", count, " bytes; ", least, " to ", most, " are allowed"));
        std::string out(reinterpret_cast<const char*>(bytes_ + at_), count);
        at_ += count;
        return out;
    }
    // Checks that `count` things of at least `each` bytes can still follow.
    void need(uint64_t count, uint64_t each) const {
        if (count <= (n_bytes_ - at_) / each) return;
        fail(join("needs ", count, " times ", each, " bytes or more, and ", n_bytes_ - at_, " are left",
                  cut_ ? join(" of the ", kMostHeaderBytes, " that a header may have") : " in the file"));
    }
    [[noreturn]] void fail(const std::string& text) const { fail_at(path_, field, at_, text); }

private:
    const std::string& path_;
    const uint8_t* bytes_;
    uint64_t n_bytes_, at_ = 0;
    bool cut_;
};

std::vector<std::string> read_texts(Cursor& in, uint64_t count) {
    in.need(count, 8);
    std::vector<std::string> out;
    out.reserve(count);
    while (out.size() < count) out.push_back(in.text(0, kTop));
    return out;
}

std::vector<bool> read_flags(Cursor& in, uint64_t count) {
    in.need(count, 1);
    std::vector<bool> out(count);
    for (uint64_t i = 0; i < count; i++) out[i] = in.number<uint8_t>() != 0;
    return out;
}

ValueType read_value_type(Cursor& in) {
    const auto id = in.number<uint32_t>();
    if (id >= std::size(kValueTypeNames)) in.fail(join("has value type ", id, "; 0 to ", std::size(kValueTypeNames) - 1, " exist"));
    return static_cast<ValueType>(id);
}

Array read_array(Cursor& in) {
    const ValueType element = read_value_type(in);
    const auto count = in.number<uint64_t>();
    switch (element) {
        case ValueType::U8: return {element, in.numbers<uint8_t, uint64_t>(count)};
        case ValueType::I8: return {element, in.numbers<int8_t, int64_t>(count)};
        case ValueType::U16: return {element, in.numbers<uint16_t, uint64_t>(count)};
        case ValueType::I16: return {element, in.numbers<int16_t, int64_t>(count)};
        case ValueType::U32: return {element, in.numbers<uint32_t, uint64_t>(count)};
        case ValueType::I32: return {element, in.numbers<int32_t, int64_t>(count)};
        case ValueType::F32: return {element, in.numbers<float, double>(count)};
        case ValueType::Bool: return {element, read_flags(in, count)};
        case ValueType::String: return {element, read_texts(in, count)};
        case ValueType::U64: return {element, in.numbers<uint64_t, uint64_t>(count)};
        case ValueType::I64: return {element, in.numbers<int64_t, int64_t>(count)};
        case ValueType::F64: return {element, in.numbers<double, double>(count)};
        case ValueType::Array: break;
    }
    in.fail("is an array of arrays, which GGUF does not use");
}

decltype(Value::value) read_value(Cursor& in, ValueType type) {
    switch (type) {
        case ValueType::U8: return uint64_t{in.number<uint8_t>()};
        case ValueType::I8: return int64_t{in.number<int8_t>()};
        case ValueType::U16: return uint64_t{in.number<uint16_t>()};
        case ValueType::I16: return int64_t{in.number<int16_t>()};
        case ValueType::U32: return uint64_t{in.number<uint32_t>()};
        case ValueType::I32: return int64_t{in.number<int32_t>()};
        case ValueType::F32: return double{in.number<float>()};
        case ValueType::Bool: return in.number<uint8_t>() != 0;
        case ValueType::String: return in.text(0, kTop);
        case ValueType::Array: return read_array(in);
        case ValueType::U64: return in.number<uint64_t>();
        case ValueType::I64: return in.number<int64_t>();
        case ValueType::F64: return in.number<double>();
    }
    in.fail("has no value type");
}

// What a file without the magic is, as far as its first bytes tell; empty if it may be a GGUF file.
std::string foreign_format(const uint8_t* bytes, uint64_t n_bytes) {
    static constexpr std::pair<std::string_view, std::string_view> kStarts[] = {
        {"PK\x03\x04", "a ZIP archive (a PyTorch checkpoint?)"},
        {"tjgg", "a GGML file of before GGUF"},
        {"fmgg", "a GGML file of before GGUF"},
        {"lmgg", "a GGML file of before GGUF"},
        {"version https://git-lfs", "a Git LFS pointer; fetch the file itself"},
        {"<", "an HTML or XML page"},
        {"{", "a JSON file"},
        {"\x1f\x8b", "a gzip archive"},
        {"\x89HDF", "an HDF5 file"},
    };
    const std::string_view start(reinterpret_cast<const char*>(bytes), std::min<uint64_t>(n_bytes, 64));
    if (start.starts_with("GGUF")) return {};
    for (const auto& [prefix, what] : kStarts)
        if (start.starts_with(prefix)) return join("is ", what, ", not a GGUF file");
    if (start.size() > 9 && start[8] == '{') return "is a safetensors file, not a GGUF file; convert it first";
    return n_bytes < 4 ? "" : join("starts with \"", printable(start.substr(0, 4)), "\", a GGUF file with \"GGUF\"");
}

void read_version(Cursor& in, Header& out) {
    in.number<uint32_t>();  // the magic, checked before
    in.field = "version";
    out.version = in.number<uint32_t>();
    if (out.version != 0 && (out.version & 0xFFFF) == 0) in.fail(join("is ", out.version, ": the file is big-endian; convert it to little-endian"));
    if (out.version != 2 && out.version != 3) in.fail(join("is ", out.version, "; versions 2 and 3 can be read"));
}

uint64_t read_count(Cursor& in, const char* field) {
    in.field = field;
    const auto count = in.number<uint64_t>();
    if (count >= kTop) in.fail(join("is ", static_cast<int64_t>(count), ", a negative number"));
    return count;
}

void read_pairs(Cursor& in, Header& out, uint64_t count) {
    in.need(count, kLeastPairBytes);
    out.keys.reserve(count);
    for (uint64_t i = 0; i < count; i++) {
        in.field = join("key number ", i);
        const uint64_t offset = in.at();
        std::string key = in.text(1, kMostKeyBytes);
        in.field = printable(key);
        if (out.values.contains(key)) in.fail(join("is there twice, first at byte ", out.values.find(key)->second.offset));
        const ValueType type = read_value_type(in);
        out.values.emplace(key, Value{type, read_value(in, type), offset});
        out.keys.push_back(std::move(key));
    }
}

uint64_t read_alignment(const std::string& path, const Header& header) {
    const auto found = header.values.find("general.alignment");
    if (found == header.values.end()) return 32;
    const Value& value = found->second;
    if (value.type != ValueType::U32) fail_at(path, found->first, value.offset, join("is of type ", value_type_name(value.type), "; u32 is wanted"));
    const uint64_t alignment = std::get<uint64_t>(value.value);
    if (!std::has_single_bit(alignment)) fail_at(path, found->first, value.offset, join("is ", alignment, ", not a power of two"));
    return alignment;
}

std::string known_types() {
    std::string out;
    for (const TypeInfo& info : kTypes) out += join(out.empty() ? "" : ", ", static_cast<uint32_t>(info.type), " ", info.name);
    return out;
}

// Bytes of the whole tensor; every product is checked.
uint64_t tensor_bytes(const Cursor& in, const Tensor& tensor) {
    const TypeInfo& type = type_info(tensor.type);
    uint64_t values = 1, bytes = 0;
    bool fits = true;
    for (uint64_t dim : tensor.dims) {
        if (dim >= kTop) in.fail(join("has a dimension of ", static_cast<int64_t>(dim), ", a negative number"));
        fits = fits && !__builtin_mul_overflow(values, dim, &values) && values < kTop;
    }
    if (tensor.dims[0] % type.block != 0)
        in.fail(join("has rows of ", tensor.dims[0], " values; type ", type.name, " needs a multiple of ", type.block));
    if (!fits || __builtin_mul_overflow(values / type.block, uint64_t{type.bytes}, &bytes) || bytes >= kTop)
        in.fail("has more than 2^63 values or bytes");
    return bytes;
}

Tensor read_info(Cursor& in) {
    Tensor tensor{};
    tensor.info_offset = in.at();
    tensor.name = in.text(0, kMostNameBytes);
    if (!tensor.name.empty()) in.field = printable(tensor.name);
    const auto n_dims = in.number<uint32_t>();
    if (n_dims > kMostDims) in.fail(join("has ", n_dims, " dimensions; at most ", kMostDims, " are allowed"));
    tensor.dims = in.numbers<uint64_t, uint64_t>(n_dims);
    if (tensor.dims.empty()) tensor.dims.push_back(1);  // a scalar
    const auto id = in.number<uint32_t>();
    if (!find_type(id)) in.fail(join("type ", id, " is not a ggml type (known: ", known_types(), "); the file needs another program, or requantise it"));
    tensor.type = static_cast<Type>(id);
    tensor.bytes = tensor_bytes(in, tensor);
    tensor.offset = in.number<uint64_t>();
    return tensor;
}

void read_infos(Cursor& in, Header& out, uint64_t count) {
    in.need(count, kLeastInfoBytes);
    out.tensors.reserve(count);
    std::map<std::string, uint64_t> seen;
    uint64_t next = 0;  // where the next tensor has to start
    for (uint64_t i = 0; i < count; i++) {
        in.field = join("tensor number ", i);
        Tensor tensor = read_info(in);
        if (const auto [other, fresh] = seen.emplace(tensor.name, tensor.info_offset); !fresh) in.fail(join("is there twice, first at byte ", other->second));
        if (tensor.offset != next)
            in.fail(join("starts at data offset ", tensor.offset, "; the tensors before it end at ", next, " (alignment ", out.alignment, ")"));
        next += tensor.bytes;  // both were below 2^63
        if (next >= kTop) in.fail("ends past 2^63 bytes");
        next += -next & (out.alignment - 1);
        out.tensors.push_back(std::move(tensor));
    }
}

void place_data(const std::string& path, Header& header, uint64_t header_bytes, const uint8_t* bytes, uint64_t n_bytes) {
    const uint64_t start = header_bytes + (-header_bytes & (header.alignment - 1));
    for (Tensor& tensor : header.tensors) {
        tensor.offset += start;
        if (tensor.offset > n_bytes || tensor.bytes > n_bytes - tensor.offset)
            fail_at(path, printable(tensor.name), tensor.info_offset,
                    join("has its data in bytes ", tensor.offset, " to ", tensor.offset + tensor.bytes, ", and the file has ", n_bytes,
                         "; is the download complete?"));
        tensor.data = bytes + tensor.offset;
    }
}

}  // namespace

std::string printable(std::string_view bytes) {
    std::string out;
    for (unsigned char c : bytes.substr(0, 80)) {
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, c >= 0x20 && c < 0x7f ? "%c" : "\\x%02x", c);
        out += escaped;
    }
    return bytes.size() > 80 ? out + "..." : out;
}

void fail_at(const std::string& path, std::string_view field, uint64_t offset, const std::string& text) {
    const std::string place = field == "file" ? "" : join(": ", field, " (byte ", offset, ")");
    throw Error(Kind::kGGUF, join(path, place, " ", text),
                {{"file", path}, {"field", std::string(field)}, {"offset", static_cast<int64_t>(offset)}});
}

std::string_view value_type_name(ValueType type) { return kValueTypeNames[static_cast<size_t>(type)]; }

Header parse_header(const std::string& path, const uint8_t* bytes, uint64_t n_bytes) {
    Header out;
    if (const std::string what = foreign_format(bytes, n_bytes); !what.empty()) fail_at(path, "magic", 0, what);
    if (n_bytes < 24) fail_at(path, "header", 0, join("is cut off: ", n_bytes, " bytes, and a GGUF file has at least 24"));
    Cursor in(path, bytes, n_bytes);
    read_version(in, out);
    const uint64_t tensors = read_count(in, "tensor_count"), pairs = read_count(in, "kv_count");
    read_pairs(in, out, pairs);
    out.alignment = read_alignment(path, out);
    in.field = "tensor_count";
    read_infos(in, out, tensors);
    place_data(path, out, in.at(), bytes, n_bytes);
    return out;
}

}  // namespace lucebox::gguf
