#include "bindings/bindings.h"
#include "model/config.h"
#include <pybind11/stl.h>

namespace py = pybind11;

namespace lucebox::bindings {

using model::Config;

static Config read(const std::shared_ptr<gguf::File>& file) {
    Config config = model::read_config(*file);
    model::find_tensors(*file, config);  // a model is what it says only if its tensors agree
    return config;
}

static const char* mtp_text(const Config& c) {
    return c.mtp == model::Mtp::kNone ? "none" : c.mtp == model::Mtp::kPresent ? "present" : "announced but absent";
}

void init_model(py::module_& m) {
    py::class_<Config>(m, "ModelInfo")
        .def(py::init(&read), py::arg("file"))
        .def_readonly("architecture", &Config::architecture)
        .def_readonly("vocab", &Config::vocab)
        .def_readonly("hidden", &Config::hidden)
        .def_readonly("layers", &Config::layers)
        .def_readonly("context_length", &Config::context_length)
        .def_property_readonly("mtp", &mtp_text)
        .def_readonly("recurrent", &Config::recurrent);
}

}  // namespace lucebox::bindings
