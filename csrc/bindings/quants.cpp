#include "quants/quants.h"
#include "bindings/bindings.h"
#include "gguf/reader.h"
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace lucebox::bindings {
namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style>;

py::list tensor_types() {
    py::list out;
    for (const gguf::TypeInfo& t : gguf::kTypes) out.append(py::make_tuple(static_cast<uint32_t>(t.type), t.name, t.block, t.bytes, t.matrix));
    return out;
}

Floats dequantize(const std::string& type, const Bytes& data) {
    const gguf::TypeInfo& info = gguf::type_named(type);
    const auto bytes = static_cast<size_t>(data.size());
    LUCE_CHECK(bytes % info.bytes == 0, kRequest, bytes, " bytes are no whole blocks of type ", type, ", which have ", info.bytes);
    const size_t n = bytes / info.bytes * info.block;
    Floats out(static_cast<py::ssize_t>(n));
    float* y = out.mutable_data();
    const uint8_t* from = data.data();
    const py::gil_scoped_release release;
    quants::dequantize(info.type, from, y, n);
    return out;
}

Bytes quantize(const std::string& type, const Floats& x, const std::optional<Floats>& importance) {
    const gguf::TypeInfo& info = gguf::type_named(type);
    LUCE_CHECK(x.ndim() == 2, kRequest, "x has ", x.ndim(), " dimensions; [rows, columns] is wanted");
    const auto rows = static_cast<size_t>(x.shape(0)), columns = static_cast<size_t>(x.shape(1));
    LUCE_CHECK(columns % info.block == 0, kRequest, "rows have ", columns, " values; type ", type, " needs a multiple of ", info.block);
    LUCE_CHECK(!importance || static_cast<size_t>(importance->size()) == columns, kRequest, "importance has ", importance->size(),
               " values for ", columns, " columns");
    Bytes out({rows, static_cast<size_t>(gguf::row_bytes(info.type, columns))});
    if (x.size() == 0) return out;
    uint8_t* y = out.mutable_data();
    const float *from = x.data(), *weights = importance ? importance->data() : nullptr;
    const py::gil_scoped_release release;
    quants::quantize(info.type, from, rows * columns, columns, weights, y);
    return out;
}

}  // namespace

void init_quants(py::module_& m) {
    m.def("tensor_types", &tensor_types);
    m.def("dequantize", &dequantize, py::arg("type"), py::arg("data"));
    m.def("quantize", &quantize, py::arg("type"), py::arg("x"), py::arg("importance") = py::none());
}

}  // namespace lucebox::bindings
