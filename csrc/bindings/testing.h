// What the two testing files share.
#pragma once
#include "bindings/bindings.h"
#include "cpu/backend.h"
#include <chrono>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace lucebox::bindings {

namespace py = pybind11;
using cpu::CpuBackend;
using Floats = py::array_t<float, py::array::c_style>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

inline int extent(const py::array& a, int axis) { return static_cast<int>(a.shape(axis)); }

// Rows of activations with their int8 form.
struct ActsMemory {
    std::vector<float> x, d;
    std::vector<int8_t> q;
    std::vector<int32_t> sum;
    int rows, columns;

    ActsMemory(int rows_, int columns_) : rows(rows_), columns(columns_) {
        const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(columns);
        x.resize(n), d.resize(n / 32), q.resize(n), sum.resize(n / 16);
    }
    ops::Acts acts() { return {columns, x.data(), q.data(), d.data(), sum.data()}; }
    py::tuple result() const {
        const auto shaped = [this](const auto& v, int per) {
            using T = typename std::decay_t<decltype(v)>::value_type;
            return py::array_t<T>({rows, columns / per}, v.data());
        };
        return py::make_tuple(shaped(x, 1), shaped(q, 1), shaped(d, 32), shaped(sum, 16));
    }
};

template <class Op> double timed(const Op& op) {
    const auto start = std::chrono::steady_clock::now();
    op();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void init_testing_sequence(py::module_& t);  // ops that know sequences
void init_testing_hip(py::module_& t);       // the HIP backend on an emulated device
void init_testing_draft(py::module_& t);     // a drafter of an engine

}  // namespace lucebox::bindings
