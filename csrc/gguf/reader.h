// GGUF files as they are, opened read-only and mapped. The input is untrusted: every number is checked before it is used, and a
// malformed file gives an Error of kind kGGUF with the facts `file`, `field` and `offset`.
#pragma once
#include "error.h"
#include "gguf/types.h"
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lucebox::gguf {

enum class ValueType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

// A metadata value. Integers of any width are held as int64 or uint64, both floats as double, arrays by their element.
struct Array {
    ValueType element;
    std::variant<std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>> values;
    size_t count() const;
};
struct Value {
    ValueType type;
    std::variant<int64_t, uint64_t, double, bool, std::string, Array> value;
    uint64_t offset;  // of the key in its file, for messages
};

// The entry of a name as the tools print it; throws Error(kRequest).
const TypeInfo& type_named(std::string_view name);

struct Tensor {
    std::string name;
    Type type;
    std::vector<uint64_t> dims;   // as in the file, dim 0 = row length; 1 to 4 of them
    uint64_t offset;              // of the data, from the start of its file
    uint64_t info_offset;         // of the entry in the header, for messages
    int part;                     // which file of a split, from 0
    const uint8_t* data;          // mapped, valid while the File lives
    uint64_t bytes;

    uint64_t columns() const { return dims[0]; }
    uint64_t rows() const { uint64_t n = 1; for (size_t i = 1; i < dims.size(); i++) n *= dims[i]; return n; }
};

class File {
public:
    // Opens PATH and, if it is the first part of a split, the other parts. Throws Error(kGGUF).
    static std::shared_ptr<const File> open(const std::string& path);
    virtual ~File() = default;

    virtual const std::string& path() const = 0;
    virtual std::vector<std::string> parts() const = 0;
    virtual uint32_t version() const = 0;
    virtual uint64_t alignment() const = 0;
    virtual uint64_t bytes() const = 0;                               // of all parts
    virtual const std::vector<std::string>& keys() const = 0;         // in file order
    virtual const Value* find(std::string_view key) const = 0;        // null if absent
    virtual const std::vector<Tensor>& tensors() const = 0;           // in file order
    virtual const Tensor* tensor(std::string_view name) const = 0;    // null if absent
    // Throws Error(kGGUF) if a part changed its size, its time or its place on disk since it was opened.
    virtual void check_unchanged() const = 0;

    // Typed access: any integer width that holds the value; a key of another kind throws Error(kGGUF) that names key, wanted and found.
    int64_t integer(std::string_view key, int64_t least, int64_t most) const;            // required
    std::optional<int64_t> find_integer(std::string_view key, int64_t least, int64_t most) const;
    double number(std::string_view key) const;
    std::optional<double> find_number(std::string_view key) const;
    std::string text(std::string_view key) const;
    std::optional<std::string> find_text(std::string_view key) const;
    std::optional<bool> find_flag(std::string_view key) const;
    const Array* find_array(std::string_view key, std::initializer_list<ValueType> elements) const;
    [[noreturn]] void fail(std::string_view field, uint64_t offset, const std::string& text) const;
    [[noreturn]] void fail(const Tensor& tensor, const std::string& text) const;  // names the tensor and its part
};

}  // namespace lucebox::gguf
