// Typed access to metadata: any integer width, errors that name the key, what was wanted and what was found.
#include "gguf/header.h"
#include <algorithm>

namespace lucebox::gguf {
namespace {

[[noreturn]] void fail_type(const File& file, std::string_view key, const Value& value, std::string_view wanted) {
    std::string found(value_type_name(value.type));
    if (const auto* array = std::get_if<Array>(&value.value)) found += join(" of ", array->count(), " ", value_type_name(array->element));
    file.fail(key, value.offset, join("is of type ", found, "; ", wanted, " is wanted"));
}

[[noreturn]] void fail_absent(const File& file, std::string_view key) { file.fail(key, 0, "is not in the file, and the model needs it"); }

}  // namespace

size_t Array::count() const {
    return std::visit([](const auto& list) { return list.size(); }, values);
}

const TypeInfo& type_named(std::string_view name) {
    std::string known;
    for (const TypeInfo& info : kTypes) {
        if (info.name == name) return info;
        known += join(" ", info.name);
    }
    throw Error(Kind::kRequest, join("\"", name, "\" is no tensor type; known are", known));
}

std::optional<int64_t> File::find_integer(std::string_view key, int64_t least, int64_t most) const {
    const Value* value = find(key);
    if (!value) return {};
    int64_t number = 0;
    if (const auto* i = std::get_if<int64_t>(&value->value)) number = *i;
    else if (const auto* u = std::get_if<uint64_t>(&value->value)) {
        if (*u > INT64_MAX) fail(key, value->offset, join("is ", *u, "; ", least, " to ", most, " are allowed"));
        number = static_cast<int64_t>(*u);
    } else fail_type(*this, key, *value, "an integer");
    if (number < least || number > most) fail(key, value->offset, join("is ", number, "; ", least, " to ", most, " are allowed"));
    return number;
}

std::optional<double> File::find_number(std::string_view key) const {
    const Value* value = find(key);
    if (!value) return {};
    if (const auto* number = std::get_if<double>(&value->value)) return *number;
    fail_type(*this, key, *value, "a float");
}

std::optional<std::string> File::find_text(std::string_view key) const {
    const Value* value = find(key);
    if (!value) return {};
    if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
    fail_type(*this, key, *value, "a string");
}

std::optional<bool> File::find_flag(std::string_view key) const {
    const Value* value = find(key);
    if (!value) return {};
    if (const auto* flag = std::get_if<bool>(&value->value)) return *flag;
    fail_type(*this, key, *value, "a bool");
}

const Array* File::find_array(std::string_view key, std::initializer_list<ValueType> elements) const {
    const Value* value = find(key);
    if (!value) return nullptr;
    const auto* array = std::get_if<Array>(&value->value);
    if (array && std::find(elements.begin(), elements.end(), array->element) != elements.end()) return array;
    std::string wanted = "an array of";
    for (ValueType element : elements) wanted += join(" ", value_type_name(element));
    fail_type(*this, key, *value, wanted);
}

int64_t File::integer(std::string_view key, int64_t least, int64_t most) const {
    if (const auto found = find_integer(key, least, most)) return *found;
    fail_absent(*this, key);
}

double File::number(std::string_view key) const {
    if (const auto found = find_number(key)) return *found;
    fail_absent(*this, key);
}

std::string File::text(std::string_view key) const {
    if (auto found = find_text(key)) return *std::move(found);
    fail_absent(*this, key);
}

void File::fail(std::string_view field, uint64_t offset, const std::string& text) const { fail_at(path(), printable(field), offset, text); }

void File::fail(const Tensor& tensor, const std::string& text) const {
    fail_at(parts().at(static_cast<size_t>(tensor.part)), printable(tensor.name), tensor.info_offset, text);
}

}  // namespace lucebox::gguf
