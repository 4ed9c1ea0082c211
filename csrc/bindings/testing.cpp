// lucebox._core.testing: single ops of a chosen variant on numpy arrays, for tests and benches.
#include "bindings/bindings.h"
#include "cpu/backend.h"
#include "error.h"
#include <chrono>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace lucebox::bindings {

namespace {

using cpu::CpuBackend;
using Floats = py::array_t<float, py::array::c_style>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;
using FileWeight = std::tuple<std::string, Bytes, int>;                   // type, blocks, rows
using SpanTuple = std::tuple<int, int, int, int, bool>;                   // slot, rows, position, pending, commit

gguf::Type type_of(const std::string& name) {
    for (const gguf::TypeInfo& info : gguf::kTypes)
        if (name == info.name && info.matrix) return info.type;
    throw py::value_error("no matrix type is called " + name);
}

int extent(const py::array& a, int axis) { return static_cast<int>(a.shape(axis)); }

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

py::tuple quantize_rows(const Floats& x, const std::string& variant) {
    ActsMemory a(extent(x, 0), extent(x, 1));
    for (int r = 0; r < a.rows; r++) {
        const size_t at = static_cast<size_t>(r) * static_cast<size_t>(a.columns);
        std::copy_n(x.data() + at, a.columns, a.x.begin() + static_cast<ptrdiff_t>(at));
        cpu::choose(variant).quantize_row(a.x.data() + at, a.columns, a.q.data() + at, a.d.data() + at / 32, a.sum.data() + at / 16);
    }
    return a.result();
}

py::tuple norm(const Floats& x, const Floats& weight, float eps, const std::vector<int32_t>& select, const std::string& variant, int threads) {
    CpuBackend backend(cpu::choose(variant), threads);
    ActsMemory a(select.empty() ? extent(x, 0) : static_cast<int>(select.size()), extent(x, 1));
    backend.norm({x.data(), weight.data(), select.empty() ? nullptr : select.data(), a.rows, a.columns, eps, a.acts()});
    return a.result();
}

py::tuple swiglu(const Floats& gate, const Floats& up, const std::string& variant, int threads) {
    CpuBackend backend(cpu::choose(variant), threads);
    ActsMemory a(extent(gate, 0), extent(gate, 1));
    backend.swiglu({gate.data(), up.data(), a.rows, a.columns, a.acts()});
    return a.result();
}

// (y [rows, weight rows] a weight, seconds [repeat]). copies: of the weights in memory, taken in turn, so that a cache does not hold them.
py::tuple matmul(const std::vector<FileWeight>& weights, const Floats& x, const std::vector<Floats>& residual, const std::string& variant, int threads,
                 int repeat, int copies) {
    CpuBackend backend(cpu::choose(variant), threads);
    ActsMemory a(extent(x, 0), extent(x, 1));
    std::copy_n(x.data(), a.x.size(), a.x.begin());
    for (int r = 0; r < a.rows; r++) {
        const size_t at = static_cast<size_t>(r) * static_cast<size_t>(a.columns);
        cpu::choose(variant).quantize_row(a.x.data() + at, a.columns, a.q.data() + at, a.d.data() + at / 32, a.sum.data() + at / 16);
    }
    std::vector<ops::Matmul> calls(static_cast<size_t>(copies), {a.acts(), a.rows, static_cast<int>(weights.size()), {}, {}, !residual.empty()});
    py::list ys;
    for (size_t i = 0; i < weights.size(); i++) {
        const auto& [type, data, rows] = weights[i];
        const gguf::Type t = type_of(type);
        const uint64_t n = static_cast<uint64_t>(rows), k = static_cast<uint64_t>(a.columns), packed = backend.packed_bytes(t, n, k);
        if (static_cast<uint64_t>(data.nbytes()) != n * gguf::row_bytes(t, k)) throw py::value_error("the blocks have another size than rows and columns say");
        py::array_t<float> y({a.rows, rows});
        if (!residual.empty()) std::copy_n(residual[i].data(), y.size(), y.mutable_data());
        for (ops::Matmul& call : calls) {
            uint8_t* copy = static_cast<uint8_t*>(backend.allocate(static_cast<uint64_t>(data.nbytes())));
            std::copy_n(data.data(), data.nbytes(), copy);
            gguf::Tensor tensor{};
            tensor.type = t, tensor.dims = {k, n}, tensor.data = copy;
            call.weight[i] = backend.prepare(tensor, packed ? static_cast<uint8_t*>(backend.allocate(packed)) : nullptr);
            call.y[i] = y.mutable_data();
        }
        ys.append(y);
    }
    py::array_t<double> seconds(repeat);
    for (int i = 0; i < repeat; i++) seconds.mutable_at(i) = timed([&] { backend.matmul(calls[static_cast<size_t>(i % copies)]); });
    return py::make_tuple(ys, seconds);
}

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

py::array_t<int32_t> argmax(const Floats& logits, const std::string& variant) {
    CpuBackend backend(cpu::choose(variant), 1);
    py::array_t<int32_t> id(logits.shape(0));
    backend.argmax({logits.data(), extent(logits, 0), extent(logits, 1), id.mutable_data()});
    return id;
}

py::array_t<float> embed(const FileWeight& weight, const std::vector<int32_t>& ids, int columns, const std::string& variant) {
    CpuBackend backend(cpu::choose(variant), 1);
    auto batch = std::make_unique<ops::Batch>();
    for (const int32_t id : ids) batch->token[batch->rows++] = id;
    py::array_t<float> h({batch->rows, columns});
    backend.embed({batch.get(), {type_of(std::get<0>(weight)), std::get<2>(weight), columns, std::get<1>(weight).data(), nullptr}, h.mutable_data()});
    return h;
}

py::array_t<float> math(const std::string& function, const Floats& x, const std::string& variant) {
    const std::vector<std::string> names = {"exp", "sigmoid", "silu", "softplus", "f16"};
    const auto found = std::find(names.begin(), names.end(), function);
    if (found == names.end()) throw py::value_error("no function is called " + function);
    py::array_t<float> y(x.size());
    cpu::choose(variant).math_row(static_cast<cpu::MathFunction>(found - names.begin()), x.data(), static_cast<int>(x.size()), y.mutable_data());
    return y;
}

}  // namespace

void init_testing(py::module_& m) {
    py::module_ t = m.def_submodule("testing", "Single ops on numpy arrays, for tests and benches.");
    const auto variant = py::arg("variant") = "auto";
    const auto threads = py::arg("threads") = 1;
    t.def("quantize_rows", &quantize_rows, py::arg("x"), variant);
    t.def("norm", &norm, py::arg("x"), py::arg("weight"), py::arg("eps"), py::arg("select") = std::vector<int32_t>{}, variant, threads);
    t.def("swiglu", &swiglu, py::arg("gate"), py::arg("up"), variant, threads);
    t.def("matmul", &matmul, py::arg("weights"), py::arg("x"), py::arg("residual") = std::vector<Floats>{}, variant, threads, py::arg("repeat") = 1,
          py::arg("copies") = 1);
    t.def("deltanet", &deltanet, py::arg("spans"), py::arg("key_heads"), py::arg("value_heads"), py::arg("eps"), py::arg("u"), py::arg("alpha"),
          py::arg("beta"), py::arg("z"), py::arg("conv"), py::arg("dt"), py::arg("a"), py::arg("norm"), py::arg("state").noconvert(),
          py::arg("ring_u").noconvert(), py::arg("ring_ab").noconvert(), variant, threads);
    t.def("attention", &attention, py::arg("rows"), py::arg("form"), py::arg("eps"), py::arg("head_dim"), py::arg("qg").noconvert(),
          py::arg("k").noconvert(), py::arg("v"), py::arg("q_norm"), py::arg("k_norm"), py::arg("cos"), py::arg("sin"), py::arg("pages").noconvert(),
          py::arg("table"), variant, threads);
    t.def("argmax", &argmax, py::arg("logits"), variant);
    t.def("embed", &embed, py::arg("weight"), py::arg("ids"), py::arg("columns"), variant);
    t.def("math", &math, py::arg("function"), py::arg("x"), variant);
}

}  // namespace lucebox::bindings
