#include "bindings/bindings.h"
#include "spec/sample.h"
#include <pybind11/numpy.h>

namespace py = pybind11;

namespace lucebox::bindings {

void init_sample(py::module_& m) {
    using spec::SamplingParams;
    py::class_<SamplingParams>(m, "SamplingParams")
        .def(py::init([](double temperature, int64_t top_k, double top_p, double min_p, uint64_t seed) {
                 const SamplingParams params{temperature, top_k, top_p, min_p, seed};
                 spec::check(params);
                 return params;
             }),
             py::arg("temperature") = 0.0, py::arg("top_k") = 0, py::arg("top_p") = 1.0, py::arg("min_p") = 0.0, py::arg("seed") = 0);
    m.def(
        "sample",
        [](const py::array_t<float, py::array::c_style>& logits, const SamplingParams& params, uint32_t position, uint32_t choice) {
            if (logits.ndim() != 1 || logits.size() == 0) throw py::value_error("logits must be one row [vocab]");
            return spec::sample(logits.data(), static_cast<size_t>(logits.size()), params, position, choice);
        },
        py::arg("logits"), py::arg("params"), py::arg("position"), py::arg("choice") = 0);
}

}  // namespace lucebox::bindings
