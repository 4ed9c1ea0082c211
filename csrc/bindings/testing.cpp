// lucebox._core.testing: single ops of a chosen variant on numpy arrays, for tests and benches.
#include "bindings/testing.h"
#include "model/rope.h"

namespace lucebox::bindings {

namespace {

using FileWeight = std::tuple<std::string, Bytes, int>;  // type, blocks, rows

gguf::Type type_of(const std::string& name) {
    for (const gguf::TypeInfo& info : gguf::kTypes)
        if (name == info.name && info.matrix) return info.type;
    throw py::value_error("no matrix type is called " + name);
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

// Seconds of each of `repeat` readings of so many bytes: what the machine's memory gives, for benches.
py::array_t<double> read_seconds(uint64_t bytes, int threads, int repeat) {
    CpuBackend backend(cpu::choose("auto"), threads);
    cpu::ThreadPool pool(threads);
    const uint64_t each = bytes / 64 / sizeof(uint64_t), words = each * 64;
    uint64_t* data = static_cast<uint64_t*>(backend.allocate(bytes));
    std::fill_n(data, words, 1);
    std::array<uint64_t, 64> sums{};
    py::array_t<double> seconds(repeat);
    for (int i = 0; i < repeat; i++)
        seconds.mutable_at(i) = timed([&] {
            pool.run(64, [&](int task, int) {
                uint64_t sum = 0;
                for (const uint64_t *at = data + static_cast<uint64_t>(task) * each, *end = at + each; at < end; at++) sum += *at;
                sums[static_cast<size_t>(task)] = sum;
            });
        });
    if (sums[0] != each) throw std::runtime_error("the memory returned other bytes than were written");
    return seconds;
}

// cos and sin of positions first .. first + positions - 1: f32 [2, positions, dims / 2].
Floats rope(float theta, int dims, int first, int positions) {
    const model::Rope angles(theta, dims);
    Floats out({2, positions, dims / 2});
    for (int i = 0; i < positions; i++) angles.fill(first + i, out.mutable_data(0, i, 0), out.mutable_data(1, i, 0));
    return out;
}

}  // namespace

void init_testing(py::module_& m) {
    py::module_ t = m.def_submodule("testing", "Single ops on numpy arrays, for tests and benches.");
    t.def("rope", &rope, py::arg("theta"), py::arg("dims"), py::arg("first"), py::arg("positions"));
    const auto variant = py::arg("variant") = "auto";
    const auto threads = py::arg("threads") = 1;
    t.def("quantize_rows", &quantize_rows, py::arg("x"), variant);
    t.def("norm", &norm, py::arg("x"), py::arg("weight"), py::arg("eps"), py::arg("select") = std::vector<int32_t>{}, variant, threads);
    t.def("swiglu", &swiglu, py::arg("gate"), py::arg("up"), variant, threads);
    t.def("matmul", &matmul, py::arg("weights"), py::arg("x"), py::arg("residual") = std::vector<Floats>{}, variant, threads, py::arg("repeat") = 1,
          py::arg("copies") = 1);
    t.def("argmax", &argmax, py::arg("logits"), variant);
    t.def("embed", &embed, py::arg("weight"), py::arg("ids"), py::arg("columns"), variant);
    t.def("read_seconds", &read_seconds, py::arg("bytes"), threads, py::arg("repeat") = 5);
    init_testing_sequence(t);
    init_testing_draft(t);
    init_testing_hip(t);
    t.def("math", &math, py::arg("function"), py::arg("x"), variant);
}

}  // namespace lucebox::bindings
