// Strings of a file are bytes: in Python they are str, what is no UTF-8 kept as surrogate escapes. Paths likewise.
#pragma once
#include <pybind11/pybind11.h>
#include <string>

namespace lucebox::bindings {

inline pybind11::str to_python(const std::string& bytes) {
    PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
    if (!text) throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::str>(text);
}

inline std::string from_python(const pybind11::handle& text) {
    const auto bytes = pybind11::reinterpret_steal<pybind11::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
    if (!bytes) throw pybind11::error_already_set();
    return bytes;
}

// A str, bytes or os.PathLike. An embedded NUL is a ValueError.
inline std::string path_of(const pybind11::object& path) {
    PyObject* bytes = nullptr;
    if (!PyUnicode_FSConverter(path.ptr(), &bytes)) throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::bytes>(bytes);
}

}  // namespace lucebox::bindings
