// The engine as Python holds it: one call at a time, without the GIL.
#pragma once
#include "bindings/bindings.h"
#include "engine/decoder.h"
#include <mutex>

namespace lucebox::bindings {

namespace py = pybind11;

// A second thread waits for its turn.
struct PyEngine {
    std::unique_ptr<engine::Engine> engine;
    std::unique_ptr<engine::Decoder> decoder;
    std::mutex turn;

    template <class Call> void exclusive(const Call& call) {
        const py::gil_scoped_release release;
        const std::lock_guard lock(turn);
        call();
    }
};

void init_decoder(py::class_<PyEngine>& engine_class, py::module_& m);

}  // namespace lucebox::bindings
