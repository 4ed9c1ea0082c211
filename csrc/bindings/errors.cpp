// Error becomes the class of its kind in lucebox.errors, its facts become attributes.
#include "bindings/bindings.h"
#include "error.h"

namespace py = pybind11;

namespace lucebox::bindings {

static const char* class_name(Kind kind) {
    switch (kind) {
        case Kind::kGGUF: return "GGUFError";
        case Kind::kUnsupportedModel: return "UnsupportedModelError";
        case Kind::kDrafterMismatch: return "DrafterMismatchError";
        case Kind::kContextFull: return "ContextFullError";
        case Kind::kOutOfMemory: return "OutOfMemoryError";
        case Kind::kDevice: return "DeviceError";
        case Kind::kRequest: return "RequestError";
    }
    return "Error";
}

// Texts may quote a file's own bytes, which need not be UTF-8.
static py::str to_str(const std::string& text) {
    return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

void init_errors(py::module_&) {
    py::register_exception_translator([](std::exception_ptr caught) {
        try {
            if (caught) std::rethrow_exception(caught);
        } catch (const Error& error) {
            py::dict facts;
            for (const auto& [name, value] : error.facts()) {
                if (const auto* number = std::get_if<int64_t>(&value)) facts[name.c_str()] = *number;
                else facts[name.c_str()] = to_str(std::get<std::string>(value));
            }
            const py::object type = py::module_::import("lucebox.errors").attr(class_name(error.kind()));
            const py::object exception = type(to_str(error.text()), **facts);
            PyErr_SetObject(type.ptr(), exception.ptr());
        }
    });
}

}  // namespace lucebox::bindings
