#include "gguf/writer.h"
#include "gguf/header.h"
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <set>
#include <unistd.h>

namespace lucebox::gguf {
namespace {

constexpr size_t kMostNameBytes = 63, kMostKeyBytes = 65535;

template <class T> void put_number(std::string& out, T x) { out.append(reinterpret_cast<const char*>(&x), sizeof x); }

void put_text(std::string& out, const std::string& text) {
    put_number<uint64_t>(out, text.size());
    out += text;
}

template <class T, class Held> void put_integer(std::string& out, const std::string& key, Held x) {
    LUCE_CHECK(x >= std::numeric_limits<T>::min() && x <= std::numeric_limits<T>::max(), kRequest, printable(key), ": ", x, " does not fit; ",
               std::numeric_limits<T>::min(), " to ", std::numeric_limits<T>::max(), " do");
    put_number(out, static_cast<T>(x));
}

void put_scalar(std::string& out, const std::string& key, ValueType type, int64_t x) {
    switch (type) {
        case ValueType::I8: return put_integer<int8_t>(out, key, x);
        case ValueType::I16: return put_integer<int16_t>(out, key, x);
        case ValueType::I32: return put_integer<int32_t>(out, key, x);
        case ValueType::I64: return put_number(out, x);
        default: throw Error(Kind::kRequest, join(printable(key), ": a signed integer cannot be written as ", value_type_name(type)));
    }
}

void put_scalar(std::string& out, const std::string& key, ValueType type, uint64_t x) {
    switch (type) {
        case ValueType::U8: return put_integer<uint8_t>(out, key, x);
        case ValueType::U16: return put_integer<uint16_t>(out, key, x);
        case ValueType::U32: return put_integer<uint32_t>(out, key, x);
        case ValueType::U64: return put_number(out, x);
        default: throw Error(Kind::kRequest, join(printable(key), ": an unsigned integer cannot be written as ", value_type_name(type)));
    }
}

void put_scalar(std::string& out, const std::string& key, ValueType type, double x) {
    if (type == ValueType::F32) return put_number(out, static_cast<float>(x));
    LUCE_CHECK(type == ValueType::F64, kRequest, printable(key), ": a float cannot be written as ", value_type_name(type));
    put_number(out, x);
}

void put_scalar(std::string& out, const std::string& key, ValueType type, bool x) {
    LUCE_CHECK(type == ValueType::Bool, kRequest, printable(key), ": a bool cannot be written as ", value_type_name(type));
    put_number<uint8_t>(out, x);
}

void put_scalar(std::string& out, const std::string& key, ValueType type, const std::string& x) {
    LUCE_CHECK(type == ValueType::String, kRequest, printable(key), ": a string cannot be written as ", value_type_name(type));
    put_text(out, x);
}

void put_scalar(std::string& out, const std::string& key, ValueType type, const Array& array) {
    LUCE_CHECK(type == ValueType::Array && array.element != ValueType::Array, kRequest, printable(key), ": an array cannot be written as ",
               value_type_name(type));
    put_number(out, static_cast<uint32_t>(array.element));
    put_number<uint64_t>(out, array.count());
    std::visit([&](const auto& list) {
        using Element = typename std::decay_t<decltype(list)>::value_type;
        for (const Element& x : list) put_scalar(out, key, array.element, x);
    }, array.values);
}

void put_pair(std::string& out, const Pair& pair) {
    put_text(out, pair.first);
    put_number(out, static_cast<uint32_t>(pair.second.type));
    std::visit([&](const auto& x) { put_scalar(out, pair.first, pair.second.type, x); }, pair.second.value);
}

// The keys as they will be written; the alignment key is checked or added.
std::vector<Pair> complete(std::vector<Pair> metadata, uint64_t alignment) {
    LUCE_CHECK(std::has_single_bit(alignment) && alignment <= UINT32_MAX, kRequest, "alignment is ", alignment, "; a power of two below 2^32 is wanted");
    std::set<std::string> seen;
    for (const auto& [key, value] : metadata) {
        LUCE_CHECK(!key.empty() && key.size() <= kMostKeyBytes, kRequest, "a key has ", key.size(), " bytes; 1 to ", kMostKeyBytes, " are allowed");
        LUCE_CHECK(seen.insert(key).second, kRequest, printable(key), " is given twice");
        const auto* u = std::get_if<uint64_t>(&value.value);
        LUCE_CHECK(key != "general.alignment" || (value.type == ValueType::U32 && u && *u == alignment), kRequest,
                   "general.alignment in the metadata is not the u32 ", alignment, " that the file is written with");
    }
    if (alignment != 32 && !seen.contains("general.alignment")) metadata.push_back({"general.alignment", {ValueType::U32, alignment, 0}});
    return metadata;
}

uint64_t tensor_bytes(const NewTensor& tensor) {
    const TypeInfo& info = type_info(tensor.type);
    const std::string name = printable(tensor.name);
    LUCE_CHECK(!name.empty() && tensor.name.size() <= kMostNameBytes, kRequest, "tensor name \"", name, "\" has ", tensor.name.size(),
               " bytes; 1 to ", kMostNameBytes, " are allowed");
    LUCE_CHECK(tensor.dims.size() >= 1 && tensor.dims.size() <= 4, kRequest, name, " has ", tensor.dims.size(), " dimensions; 1 to 4 are allowed");
    uint64_t bytes = info.bytes;
    bool fits = true;
    for (size_t i = 0; i < tensor.dims.size(); i++) {
        LUCE_CHECK(tensor.dims[i] > 0, kRequest, name, ": dimension ", i, " is 0");
        fits = fits && !__builtin_mul_overflow(bytes, i ? tensor.dims[i] : tensor.dims[0] / info.block, &bytes);
    }
    LUCE_CHECK(tensor.dims[0] % info.block == 0, kRequest, name, " has rows of ", tensor.dims[0], " values; type ", info.name,
               " needs a multiple of ", info.block);
    LUCE_CHECK(fits && bytes < uint64_t{1} << 62, kRequest, name, " has more than 2^62 bytes");
    return bytes;
}

std::string temporary_name(const std::string& path) {
    static std::atomic<unsigned> counter{0};
    return join(path, ".", static_cast<int64_t>(getpid()), "-", counter++, ".tmp");
}

}  // namespace

Writer::Writer(const std::string& path, const std::vector<Pair>& metadata, const std::vector<NewTensor>& tensors, uint64_t alignment)
    : path_(path), file_(temporary_name(path)), alignment_(alignment) {
    const std::vector<Pair> pairs = complete(metadata, alignment);
    std::string header = "GGUF";
    put_number<uint32_t>(header, 3);
    put_number<uint64_t>(header, tensors.size());
    put_number<uint64_t>(header, pairs.size());
    for (const Pair& pair : pairs) put_pair(header, pair);
    std::set<std::string> seen;
    uint64_t offset = 0;
    for (const NewTensor& tensor : tensors) {
        wanted_.emplace_back(tensor.name, tensor_bytes(tensor));
        LUCE_CHECK(seen.insert(tensor.name).second, kRequest, printable(tensor.name), " is given twice");
        put_text(header, tensor.name);
        put_number(header, static_cast<uint32_t>(tensor.dims.size()));
        for (uint64_t dim : tensor.dims) put_number(header, dim);
        put_number(header, static_cast<uint32_t>(tensor.type));
        put_number(header, offset);
        offset += wanted_.back().second;
        offset += -offset & (alignment - 1);
        LUCE_CHECK(offset < uint64_t{1} << 62, kRequest, printable(tensor.name), " ends past 2^62 bytes");
    }
    file_.descriptor = ::open(file_.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_.descriptor < 0) fail("cannot be created");
    put(header.data(), header.size());
    pad();
}

void Writer::Temporary::remove() {
    if (descriptor < 0) return;
    ::close(descriptor);
    ::unlink(path.c_str());
    descriptor = -1;
}

void Writer::add(std::span<const uint8_t> data) {
    LUCE_CHECK(next_ < wanted_.size(), kRequest, "all ", wanted_.size(), " tensors are written");
    const auto& [name, bytes] = wanted_[next_++];
    LUCE_CHECK(data.size() == bytes, kRequest, printable(name), " has ", data.size(), " bytes of data; its dimensions and type make ", bytes);
    put(data.data(), data.size());
    pad();
}

void Writer::finish() {
    LUCE_CHECK(next_ == wanted_.size(), kRequest, next_, " of ", wanted_.size(), " tensors are written");
    if (fsync(file_.descriptor) != 0) fail("cannot be written");
    if (std::rename(file_.path.c_str(), path_.c_str()) != 0) fail("cannot be put in place");
    ::close(file_.descriptor);
    file_.descriptor = -1;
    // The name is on disk only when its folder is; a file system that cannot sync a folder keeps the file all the same.
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    if (const int handle = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); handle >= 0) {
        fsync(handle);
        ::close(handle);
    }
}

void Writer::put(const void* data, size_t n_bytes) {
    const auto* at = static_cast<const char*>(data);
    written_ += n_bytes;
    while (n_bytes > 0) {
        const ssize_t n = ::write(file_.descriptor, at, std::min<size_t>(n_bytes, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("cannot be written");
        at += n;
        n_bytes -= static_cast<size_t>(n);
    }
}

void Writer::pad() {
    static constexpr char kZeros[4096] = {};
    for (uint64_t left = -written_ & (alignment_ - 1); left > 0;) {
        const uint64_t n = std::min<uint64_t>(left, sizeof kZeros);
        put(kZeros, n);
        left -= n;
    }
}

void Writer::fail(const char* what) const { fail_at(path_, "file", written_, join(what, ": ", std::strerror(errno))); }

}  // namespace lucebox::gguf
