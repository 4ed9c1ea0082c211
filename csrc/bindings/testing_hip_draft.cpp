// lucebox._core.testing.hip: a drafter's ops one by one, on an emulated device or ("cpu") by the portable variant, with the same arguments.
#include "bindings/testing_hip.h"

namespace lucebox::bindings {

namespace {

using DraftSpan = std::tuple<int, int, int, int>;  // slot, rows, position, context

// What DeviceArrays offers, on the host.
struct HostArrays {
    CpuBackend backend{cpu::choose("portable"), 1};

    template <class T> T* empty(size_t n) { return static_cast<T*>(backend.allocate(n * sizeof(T))); }
    template <class T> T* copy(const T* from, size_t n) {
        T* to = empty<T>(n);
        std::copy_n(from, n, to);
        return to;
    }
    ops::Acts acts(int rows, int columns) {
        const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(columns);
        return {columns, empty<float>(n), empty<int8_t>(n), empty<float>(n / 32), empty<int32_t>(n / 16)};
    }
    py::tuple result(const ops::Acts& a, int rows) {
        ActsMemory m(rows, a.columns);
        std::copy_n(a.x, m.x.size(), m.x.data()), std::copy_n(a.q, m.q.size(), m.q.data());
        std::copy_n(a.d, m.d.size(), m.d.data()), std::copy_n(a.sum, m.sum.size(), m.sum.data());
        return m.result();
    }
    void use_scratch(const ops::Limits& limits) { backend.use_scratch(limits, backend.allocate(backend.scratch_bytes(limits))); }
};

// call(arrays) on either.
template <class Call> auto on(const std::string& device, const std::string& order, const Call& call) {
    if (device == "cpu") {
        HostArrays arrays;
        return call(arrays);
    }
    DeviceArrays arrays(device, order);
    return call(arrays);
}

template <class Arrays, class T> T* copy_all(Arrays& on, const py::array_t<T, py::array::c_style>& a) { return on.copy(a.data(), static_cast<size_t>(a.size())); }
// Rows, with room for those of the bucket.
template <class Arrays> float* copy_rows(Arrays& on, const Floats& a) {
    const auto n = static_cast<size_t>(a.size());
    std::vector<float> padded(n / static_cast<size_t>(extent(a, 0)) * static_cast<size_t>(hip::row_bucket(extent(a, 0))), 0.0f);
    std::copy_n(a.data(), n, padded.data());
    return on.copy(padded.data(), padded.size());
}
template <class Arrays, class T> void back(Arrays& on, py::array_t<T, py::array::c_style>& a, const T* from) {
    on.backend.download(a.mutable_data(), from, static_cast<size_t>(a.nbytes()));
}

std::unique_ptr<ops::Batch> batch_of(const std::vector<DraftSpan>& spans) {
    auto batch = std::make_unique<ops::Batch>();
    for (const auto& [slot, rows, position, context] : spans) {
        batch->span[batch->spans++] = {slot, batch->rows, rows, position, 0, false, context};
        for (int i = 0; i < rows; i++, batch->rows++) batch->slot[batch->rows] = slot, batch->position[batch->rows] = position + i;
    }
    return batch;
}

// q, k and pages are changed in place.
py::tuple draft_attention(const std::vector<DraftSpan>& spans, int window, bool causal, float eps, Floats& q, Floats& k, const Floats& v, const Floats& q_norm,
                          const Floats& k_norm, const Floats& cos, const Floats& sin, Bytes& pages, const py::array_t<int32_t, py::array::c_style>& table,
                          const std::string& device, const std::string& order) {
    return on(device, order, [&](auto& arrays) {
        const int heads = extent(q, 1), head_dim = extent(q, 2);
        auto batch = batch_of(spans);
        batch->rope_dims = head_dim;
        batch->rope_cos = const_cast<float*>(cos.data()), batch->rope_sin = const_cast<float*>(sin.data());
        arrays.use_scratch({ops::kMaxRows, ops::kMaxSlots, 1, 1, heads, head_dim, head_dim, heads, head_dim});
        const ops::Acts y = arrays.acts(batch->rows, heads * head_dim);
        float *own_q = copy_rows(arrays, q), *own_k = copy_rows(arrays, k);
        uint8_t* own_pages = copy_all(arrays, pages);
        const ops::DraftContext block{.batch = arrays.backend.use_batch(*batch, ops::Place::kDraft),
                                      .rows = arrays.backend.launch_rows(batch->rows),
                                      .layout = {ops::KvForm::F16, extent(k, 1), head_dim},
                                      .eps = eps,
                                      .k = own_k,
                                      .v = copy_rows(arrays, v),
                                      .k_norm = copy_all(arrays, k_norm),
                                      .pages = own_pages,
                                      .table = copy_all(arrays, table),
                                      .max_pages = extent(table, 1)};
        arrays.backend.draft_attention({block, heads, window, causal, own_q, copy_all(arrays, q_norm), y});
        back(arrays, q, own_q), back(arrays, k, own_k), back(arrays, pages, own_pages);
        return arrays.result(y, batch->rows);
    });
}

// h: taken on top of it, and changed; of no size: y is returned.
py::tuple draft_conv(const std::vector<DraftSpan>& spans, int group, int side, const Floats& x, const Floats& delta, const Floats& base, Floats& h,
                     const std::string& device, const std::string& order) {
    return on(device, order, [&](auto& arrays) {
        const auto batch = batch_of(spans);
        const bool residual = h.size() > 0;
        const ops::Acts y = arrays.acts(batch->rows, extent(x, 1));
        arrays.use_scratch({ops::kMaxRows, ops::kMaxSlots, 1, 1});
        float* own_h = residual ? copy_rows(arrays, h) : nullptr;
        arrays.backend.draft_conv({.batch = arrays.backend.use_batch(*batch, ops::Place::kDraft),
                                   .rows = arrays.backend.launch_rows(batch->rows),
                                   .hidden = extent(x, 1),
                                   .group = group,
                                   .side = side,
                                   .x = copy_rows(arrays, x),
                                   .delta = copy_rows(arrays, delta),
                                   .base = copy_all(arrays, base),
                                   .h = own_h,
                                   .y = residual ? ops::Acts{} : y});
        if (residual) back(arrays, h, own_h);
        return arrays.result(y, batch->rows);
    });
}

// (id, value), each [rows, 16].
py::tuple top_k(const Floats& logits, int k, float multiplier, float softcap, const std::string& device, const std::string& order) {
    return on(device, order, [&](auto& arrays) {
        const int rows = extent(logits, 0);
        py::array_t<int32_t> id({rows, ops::kCandidates});
        py::array_t<float> value({rows, ops::kCandidates});
        arrays.use_scratch({ops::kMaxRows, 1, 1, 1, 1, 32, 32, 1, 32});
        auto* own_id = arrays.template empty<int32_t>(static_cast<size_t>(id.size()));
        auto* own_value = arrays.template empty<float>(static_cast<size_t>(value.size()));
        arrays.backend.top_k({copy_all(arrays, logits), rows, extent(logits, 1), k, multiplier, softcap, own_id, own_value});
        arrays.backend.download(id.mutable_data(), own_id, static_cast<size_t>(id.nbytes()));
        arrays.backend.download(value.mutable_data(), own_value, static_cast<size_t>(value.nbytes()));
        return py::make_tuple(id, value);
    });
}

}  // namespace

void init_testing_hip_draft(py::module_& t) {
    const auto device = py::arg("device") = "emulated";
    const auto order = py::arg("order") = "forward";
    t.def("draft_attention", &draft_attention, py::arg("spans"), py::arg("window"), py::arg("causal"), py::arg("eps"), py::arg("q").noconvert(),
          py::arg("k").noconvert(), py::arg("v"), py::arg("q_norm"), py::arg("k_norm"), py::arg("cos"), py::arg("sin"), py::arg("pages").noconvert(),
          py::arg("table"), device, order);
    t.def("draft_conv", &draft_conv, py::arg("spans"), py::arg("group"), py::arg("side"), py::arg("x"), py::arg("delta"), py::arg("base"),
          py::arg("h").noconvert(), device, order);
    t.def("top_k", &top_k, py::arg("logits"), py::arg("k"), py::arg("multiplier") = 1.0f, py::arg("softcap") = 0.0f, device, order);
}

}  // namespace lucebox::bindings
