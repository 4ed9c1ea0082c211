#include "bindings/bindings.h"
#include "bindings/text.h"
#include "gguf/writer.h"
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <algorithm>

namespace py = pybind11;

namespace lucebox::bindings {

using gguf::Array;
using gguf::File;
using gguf::Tensor;
using gguf::Value;
using gguf::ValueType;
using FilePointer = std::shared_ptr<File>;

namespace {

constexpr std::pair<const char*, ValueType> kValueTypes[] = {
    {"u8", ValueType::U8}, {"i8", ValueType::I8}, {"u16", ValueType::U16}, {"i16", ValueType::I16}, {"u32", ValueType::U32}, {"i32", ValueType::I32},
    {"f32", ValueType::F32}, {"bool", ValueType::Bool}, {"str", ValueType::String}, {"u64", ValueType::U64}, {"i64", ValueType::I64}, {"f64", ValueType::F64},
};

py::object to_object(int64_t x) { return py::int_(x); }
py::object to_object(uint64_t x) { return py::int_(x); }
py::object to_object(double x) { return py::float_(x); }
py::object to_object(bool x) { return py::bool_(x); }
py::object to_object(const std::string& x) { return to_python(x); }
py::object to_object(const Array& array) {
    py::list out(array.count());
    std::visit([&](const auto& list) {
        using Element = typename std::decay_t<decltype(list)>::value_type;
        size_t i = 0;
        for (const Element& x : list) out[i++] = to_object(x);
    }, array.values);
    return out;
}

// Made once a file: the vocabulary of a large model takes a tenth of a second.
py::dict metadata(const py::object& self) {
    if (py::hasattr(self, "_metadata")) return self.attr("_metadata");
    const File& file = py::cast<const File&>(self);
    py::dict out;
    for (const std::string& key : file.keys()) out[to_python(key)] = std::visit([](const auto& x) { return to_object(x); }, file.find(key)->value);
    self.attr("_metadata") = out;
    return out;
}

// As write_gguf takes them: "u32", "str[]".
py::dict value_types(const File& file) {
    const auto name_of = [](ValueType type) {
        return std::string(std::ranges::find(kValueTypes, type, &std::pair<const char*, ValueType>::second)->first);
    };
    py::dict out;
    for (const std::string& key : file.keys()) {
        const Value& value = *file.find(key);
        const auto* array = std::get_if<Array>(&value.value);
        out[to_python(key)] = array ? name_of(array->element) + "[]" : name_of(value.type);
    }
    return out;
}

py::array data(const py::object& self, const py::str& name) {
    const File& file = py::cast<const File&>(self);
    const Tensor* tensor = file.tensor(from_python(name));
    if (!tensor) throw py::key_error("no tensor " + std::string(py::repr(name)) + " in " + file.path());
    file.check_unchanged();
    py::array_t<uint8_t> out({static_cast<py::ssize_t>(tensor->bytes)}, {1}, tensor->data, self);  // self keeps the mapping alive
    out.attr("setflags")(py::arg("write") = false);
    return out;
}

template <class T> T cast(const std::string& key, const std::string& type, const py::handle& value) {
    try {
        return py::cast<T>(value);
    } catch (const py::cast_error&) {
        throw Error(Kind::kRequest, join(key, ": ", py::repr(value).cast<std::string>(), " cannot be written as ", type));
    }
}

template <> std::string cast(const std::string& key, const std::string& type, const py::handle& value) {
    if (py::isinstance<py::str>(value)) return from_python(value);
    throw Error(Kind::kRequest, join(key, ": ", py::repr(value).cast<std::string>(), " cannot be written as ", type));
}

template <class T> std::vector<T> cast_list(const std::string& key, const std::string& type, const py::handle& values) {
    std::vector<T> out;
    for (const py::handle& value : py::iter(values)) out.push_back(cast<T>(key, type, value));
    return out;
}

// One value, or with kList an array of them, in the alternative that its type is held in.
template <bool kList> auto held(const std::string& key, const std::string& name, ValueType type, const py::handle& value) {
    const auto as = [&]<class T>(T) {
        if constexpr (kList) return Array{type, cast_list<T>(key, name, value)};
        else return decltype(Value::value)(cast<T>(key, name, value));
    };
    switch (type) {
        case ValueType::I8: case ValueType::I16: case ValueType::I32: case ValueType::I64: return as(int64_t{});
        case ValueType::F32: case ValueType::F64: return as(double{});
        case ValueType::Bool: return as(bool{});
        case ValueType::String: return as(std::string{});
        default: return as(uint64_t{});
    }
}

gguf::Pair to_pair(const std::tuple<py::str, std::string, py::object>& entry) {
    const auto& [key_text, name, value] = entry;
    const std::string key = from_python(key_text), element = name.ends_with("[]") ? name.substr(0, name.size() - 2) : name;
    for (const auto& [known, type] : kValueTypes) {
        if (element != known) continue;
        if (element == name) return {key, {type, held<false>(key, name, type, value), 0}};
        return {key, {ValueType::Array, held<true>(key, name, type, value), 0}};
    }
    throw Error(Kind::kRequest, join(key, ": \"", name, "\" is no type of a value; u8 i8 u16 i16 u32 i32 f32 bool str u64 i64 f64 are, and these with []"));
}

using Bytes = py::array_t<uint8_t, py::array::c_style>;

using TensorList = std::vector<std::tuple<std::string, std::string, std::vector<uint64_t>>>;

std::unique_ptr<gguf::Writer> open_writer(const py::object& path, const std::vector<std::tuple<py::str, std::string, py::object>>& metadata,
                                          const TensorList& tensors, uint64_t alignment) {
    std::vector<gguf::Pair> pairs;
    for (const auto& entry : metadata) pairs.push_back(to_pair(entry));
    std::vector<gguf::NewTensor> infos;
    for (const auto& [name, type, dims] : tensors) infos.push_back({name, gguf::type_named(type).type, dims});
    return std::make_unique<gguf::Writer>(path_of(path), pairs, infos, alignment);
}

void add_tensor(gguf::Writer& writer, const Bytes& bytes) {
    const std::span<const uint8_t> data(bytes.data(), static_cast<size_t>(bytes.size()));
    const py::gil_scoped_release release;
    writer.add(data);
}

}  // namespace

void init_gguf(py::module_& m) {
    py::class_<Tensor>(m, "TensorInfo")
        .def_property_readonly("name", [](const Tensor& t) { return to_python(t.name); })
        .def_property_readonly("type", [](const Tensor& t) { return gguf::type_info(t.type).name; })
        .def_readonly("dims", &Tensor::dims)
        .def_readonly("offset", &Tensor::offset)
        .def_readonly("nbytes", &Tensor::bytes)
        .def_readonly("part", &Tensor::part)
        .def("__repr__", [](const Tensor& t) { return join("TensorInfo(", t.name, ", ", gguf::type_info(t.type).name, ", ", t.bytes, " bytes)"); });
    py::class_<File, FilePointer>(m, "GGUFFile", py::dynamic_attr())
        .def(py::init([](const py::object& path) {
                 const std::string name = path_of(path);
                 const py::gil_scoped_release release;
                 return std::const_pointer_cast<File>(File::open(name));
             }),
             py::arg("path"))
        .def_property_readonly("path", [](const File& f) { return to_python(f.path()); })
        .def_property_readonly("parts", [](const File& f) {
            py::list out;
            for (const std::string& part : f.parts()) out.append(to_python(part));
            return out;
        })
        .def_property_readonly("version", &File::version)
        .def_property_readonly("alignment", &File::alignment)
        .def_property_readonly("nbytes", &File::bytes)
        .def_property_readonly("metadata", &metadata)
        .def_property_readonly("value_types", &value_types)
        .def_property_readonly("tensors", [](const py::object& self) {
            py::list out;  // of references: the list's elements keep the file alive
            for (const Tensor& tensor : py::cast<const File&>(self).tensors()) out.append(py::cast(tensor, py::return_value_policy::reference_internal, self));
            return out;
        })
        .def("data", &data, py::arg("name"))
        .def("__repr__", [](const File& f) { return py::str("GGUFFile({!r})").format(to_python(f.path())); });
    py::class_<gguf::Writer>(m, "GGUFWriter")
        .def(py::init(&open_writer), py::arg("path"), py::arg("metadata"), py::arg("tensors"), py::arg("alignment") = 32)
        .def("add", &add_tensor, py::arg("data"))
        .def("finish", &gguf::Writer::finish, py::call_guard<py::gil_scoped_release>())
        .def("__enter__", [](const py::object& self) { return self; })
        .def("__exit__", [](gguf::Writer& writer, const py::args&) { writer.abandon(); });
    m.def("write_gguf",
          [](const py::object& path, const std::vector<std::tuple<py::str, std::string, py::object>>& metadata,
             const std::vector<std::tuple<std::string, std::string, std::vector<uint64_t>, Bytes>>& tensors, uint64_t alignment) {
              TensorList infos;
              for (const auto& [name, type, dims, bytes] : tensors) infos.emplace_back(name, type, dims);
              const auto writer = open_writer(path, metadata, infos, alignment);
              for (const auto& tensor : tensors) add_tensor(*writer, std::get<3>(tensor));
              writer->finish();
          },
          py::arg("path"), py::arg("metadata"), py::arg("tensors"), py::arg("alignment") = 32);
}

}  // namespace lucebox::bindings
