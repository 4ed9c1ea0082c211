// Numpy arrays on a device of the HIP backend.
#pragma once
#include "bindings/testing.h"
#include "hip/emulator/device.h"
#include "hip/runtime/backend.h"
#include "hip/runtime/pack.h"
#include "hip/runtime/plan.h"

namespace lucebox::bindings {

inline std::unique_ptr<hip::Device> open_device(const std::string& name, const std::string& order) {
    auto device = hip::open_emulated(name);
    if (order != "forward" && order != "backward" && order != "shuffled") throw py::value_error("order is " + order + "; forward, backward or shuffled");
    using hip::emulator::Order;
    device->set_order(order == "forward" ? Order::kForward : order == "backward" ? Order::kBackward : Order::kShuffled);
    return device;
}

struct DeviceArrays {
    hip::HipBackend backend;

    DeviceArrays(const std::string& device, const std::string& order, const std::string& launch = "direct")
        : backend(open_device(device, order), hip::choose_launch_mode(launch, hip::Arch::kGfx12)) {}

    template <class T> T* empty(size_t n) { return static_cast<T*>(backend.allocate(n * sizeof(T))); }
    template <class T> T* copy(const T* from, size_t n) {
        T* to = empty<T>(n);
        backend.upload(to, from, n * sizeof(T));
        return to;
    }
    template <class T> T* copy(const py::array_t<T, py::array::c_style>& a) { return copy(a.data(), static_cast<size_t>(a.size())); }
    template <class T> py::array_t<T> array(const T* from, const std::vector<int>& shape) {
        py::array_t<T> a(shape);
        backend.download(a.mutable_data(), from, static_cast<size_t>(a.nbytes()));
        return a;
    }
    template <class T> void back(py::array_t<T, py::array::c_style>& a, const T* from) {
        backend.download(a.mutable_data(), from, static_cast<size_t>(a.nbytes()));
    }

    // Memory for the rows of a bucket, in tiles of 16.
    ops::Acts acts(int rows, int columns) {
        const size_t n = static_cast<size_t>((hip::row_bucket(rows) + 15) / 16 * 16) * static_cast<size_t>(columns);
        return {columns, empty<float>(n), empty<int8_t>(n), empty<float>(n / 32), empty<int32_t>(n / 16)};
    }
    // x and its int8 form, as the portable variant quantises it.
    ops::Acts quantized(const Floats& x) {
        ActsMemory m(extent(x, 0), extent(x, 1));
        for (int r = 0; r < m.rows; r++) {
            const size_t at = static_cast<size_t>(r) * static_cast<size_t>(m.columns);
            cpu::choose("portable").quantize_row(x.data() + at, m.columns, m.q.data() + at, m.d.data() + at / 32, m.sum.data() + at / 16);
        }
        const size_t n = static_cast<size_t>((hip::row_bucket(m.rows) + 15) / 16 * 16) * static_cast<size_t>(m.columns);
        std::vector<uint8_t> q(n);
        std::vector<float> d(n / 32), sums(n / 16);
        hip::pack_rows(m.q.data(), m.d.data(), m.sum.data(), m.rows, m.columns, q.data(), d.data(), sums.data());
        const ops::Acts a = acts(m.rows, m.columns);
        backend.upload(a.x, x.data(), static_cast<size_t>(x.nbytes()));
        backend.upload(a.q, q.data(), n), backend.upload(a.d, d.data(), n / 8), backend.upload(a.sum, sums.data(), n / 4);
        return a;
    }
    // x, q, d, sums as testing's ops give them.
    py::tuple result(const ops::Acts& a, int rows) {
        const size_t n = static_cast<size_t>((hip::row_bucket(rows) + 15) / 16 * 16) * static_cast<size_t>(a.columns);
        std::vector<uint8_t> q(n);
        std::vector<float> d(n / 32), sums(n / 16);
        backend.download(q.data(), a.q, n), backend.download(d.data(), a.d, n / 8), backend.download(sums.data(), a.sum, n / 4);
        ActsMemory m(rows, a.columns);
        backend.download(m.x.data(), a.x, m.x.size() * sizeof(float));
        hip::unpack_rows(q.data(), d.data(), sums.data(), rows, a.columns, m.q.data(), m.d.data(), m.sum.data());
        return m.result();
    }
    void use_scratch(const ops::Limits& limits) { backend.use_scratch(limits, backend.allocate(backend.scratch_bytes(limits))); }
};

void init_testing_hip_sequence(py::module_& t);  // ops that know sequences, and the model
void init_testing_hip_draft(py::module_& t);     // ops of a drafter

}  // namespace lucebox::bindings
