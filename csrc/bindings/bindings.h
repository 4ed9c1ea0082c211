// One register function a topic; module.cpp lists them.
#pragma once
#include <pybind11/pybind11.h>

namespace lucebox::bindings {

void init_errors(pybind11::module_& m);   // before all others
void init_gguf(pybind11::module_& m);
void init_quants(pybind11::module_& m);
void init_model(pybind11::module_& m);
void init_engine(pybind11::module_& m);
void init_devices(pybind11::module_& m);
void init_sample(pybind11::module_& m);
void init_testing(pybind11::module_& m);  // submodule `testing`

}  // namespace lucebox::bindings
