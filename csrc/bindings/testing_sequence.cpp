// lucebox._core.testing: the ops that know sequences, with their state in numpy arrays.
#include "bindings/testing.h"

namespace lucebox::bindings {

namespace {

using SpanTuple = std::tuple<int, int, int, int, bool>;  // slot, rows, position, pending, commit

// state, ring_u and ring_ab are changed in place.
py::tuple deltanet(const std::vector<SpanTuple>& spans, int key_heads, int value_heads, float eps, const Floats& u, const Floats& alpha, const Floats& beta,
                   const Floats& z, const Floats& conv, const Floats& dt, const Floats& a, const Floats& norm, Floats& state, Floats& ring_u,
                   Floats& ring_ab, const std::string& variant, int threads) {
    CpuBackend backend(cpu::choose(variant), threads);
    const ops::Limits limits{ops::kMaxRows, ops::kMaxSlots, key_heads, value_heads};
    backend.use_scratch(limits, backend.allocate(backend.scratch_bytes(limits)));
    auto batch = std::make_unique<ops::Batch>();
    for (const auto& [slot, rows, position, pending, commit] : spans) {
        batch->span[batch->spans++] = {slot, batch->rows, rows, position, pending, commit};
        for (int i = 0; i < rows; i++, batch->rows++) batch->slot[batch->rows] = slot, batch->position[batch->rows] = position + i;
    }
    ActsMemory y(batch->rows, value_heads * ops::kHeadDim);
    const double seconds = timed([&] {
        backend.deltanet({batch.get(), key_heads, value_heads, eps, u.data(), alpha.data(), beta.data(), z.data(), conv.data(), dt.data(), a.data(),
                          norm.data(), state.mutable_data(), ring_u.mutable_data(), ring_ab.mutable_data(), y.acts()});
    });
    return py::make_tuple(y.result(), seconds);
}

// qg, k and pages are changed in place. rows: (slot, position) of each; form: q8_0, f16 or f32.
py::tuple attention(const std::vector<std::pair<int, int>>& rows, const std::string& form, float eps, int head_dim, Floats& qg, Floats& k, const Floats& v,
                    const Floats& q_norm, const Floats& k_norm, const Floats& cos, const Floats& sin, Bytes& pages,
                    const py::array_t<int32_t, py::array::c_style>& table, const std::string& variant, int threads) {
    CpuBackend backend(cpu::choose(variant), threads);
    auto batch = std::make_unique<ops::Batch>();
    for (const auto& [slot, position] : rows) batch->slot[batch->rows] = slot, batch->position[batch->rows++] = position;
    batch->rope_dims = 2 * extent(cos, 1);
    batch->rope_cos = const_cast<float*>(cos.data()), batch->rope_sin = const_cast<float*>(sin.data());
    const int heads = extent(qg, 1);
    const ops::KvForm kv = form == "q8_0" ? ops::KvForm::Q8_0 : form == "f16" ? ops::KvForm::F16 : ops::KvForm::F32;
    ActsMemory y(batch->rows, heads * head_dim);
    const double seconds = timed([&] {
        backend.attention({batch.get(), heads, 2 * extent(cos, 1), {kv, extent(k, 1), head_dim}, eps, qg.mutable_data(), k.mutable_data(), v.data(),
                           q_norm.data(), k_norm.data(), pages.mutable_data(), table.data(), extent(table, 1), y.acts()});
    });
    return py::make_tuple(y.result(), seconds);
}

}  // namespace

void init_testing_sequence(py::module_& t) {
    const auto variant = py::arg("variant") = "auto";
    const auto threads = py::arg("threads") = 1;
    t.def("deltanet", &deltanet, py::arg("spans"), py::arg("key_heads"), py::arg("value_heads"), py::arg("eps"), py::arg("u"), py::arg("alpha"),
          py::arg("beta"), py::arg("z"), py::arg("conv"), py::arg("dt"), py::arg("a"), py::arg("norm"), py::arg("state").noconvert(),
          py::arg("ring_u").noconvert(), py::arg("ring_ab").noconvert(), variant, threads);
    t.def("attention", &attention, py::arg("rows"), py::arg("form"), py::arg("eps"), py::arg("head_dim"), py::arg("qg").noconvert(),
          py::arg("k").noconvert(), py::arg("v"), py::arg("q_norm"), py::arg("k_norm"), py::arg("cos"), py::arg("sin"), py::arg("pages").noconvert(),
          py::arg("table"), variant, threads);
}

}  // namespace lucebox::bindings
