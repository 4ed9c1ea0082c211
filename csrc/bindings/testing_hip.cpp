// lucebox._core.testing.hip: single ops of the HIP backend on numpy arrays, on an emulated device. Arguments and results are those of testing.
#include "bindings/testing_hip.h"
#include "hip/emulator/faults.h"

namespace lucebox::bindings {

namespace {

using FileWeight = std::tuple<std::string, Bytes, int>;  // type, blocks, rows

gguf::Type type_of(const std::string& name) {
    for (const gguf::TypeInfo& info : gguf::kTypes)
        if (name == info.name && info.matrix) return info.type;
    throw py::value_error("no matrix type is called " + name);
}

ops::Weight prepared(DeviceArrays& on, const FileWeight& weight, int columns) {
    const auto& [type, data, rows] = weight;
    gguf::Tensor tensor{};
    tensor.type = type_of(type), tensor.dims = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)}, tensor.data = data.data();
    return on.backend.prepare(tensor, on.empty<uint8_t>(on.backend.packed_bytes(tensor.type, tensor.rows(), tensor.columns())));
}

py::tuple norm(const Floats& x, const Floats& weight, float eps, const std::vector<int32_t>& select, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order);
    const int rows = select.empty() ? extent(x, 0) : static_cast<int>(select.size()), columns = extent(x, 1);
    const ops::Acts y = on.acts(rows, columns);
    on.backend.norm({on.copy(x), on.copy(weight), select.empty() ? nullptr : on.copy(select.data(), select.size()), rows, columns, eps, y});
    return on.result(y, rows);
}

py::tuple swiglu(const Floats& gate, const Floats& up, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order);
    const ops::Acts y = on.acts(extent(gate, 0), extent(gate, 1));
    on.backend.swiglu({on.copy(gate), on.copy(up), extent(gate, 0), extent(gate, 1), y});
    return on.result(y, extent(gate, 0));
}

// shared: workgroups may share a tile's segments, which takes scratch.
py::list matmul(const std::vector<FileWeight>& weights, const Floats& x, const std::vector<Floats>& residual, bool shared, const std::string& device,
                const std::string& order) {
    DeviceArrays on(device, order);
    if (shared) on.use_scratch({ops::kMaxRows, 1, 1, 1});
    const int rows = extent(x, 0), columns = extent(x, 1);
    ops::Matmul op{on.quantized(x), rows, static_cast<int>(weights.size()), {}, {}, !residual.empty()};
    for (size_t i = 0; i < weights.size(); i++) {
        op.weight[i] = prepared(on, weights[i], columns);
        const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(op.weight[i].rows);
        op.y[i] = residual.empty() ? on.empty<float>(n) : on.copy(residual[i]);
    }
    on.backend.matmul(op);
    py::list ys;
    for (int i = 0; i < op.weights; i++) ys.append(on.array<float>(op.y[i], {rows, op.weight[i].rows}));
    return ys;
}

py::array_t<int32_t> argmax(const Floats& logits, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order);
    const int rows = extent(logits, 0);
    int32_t* id = on.empty<int32_t>(static_cast<size_t>(rows));
    on.use_scratch({ops::kMaxRows, 1, 1, 1});
    on.backend.argmax({on.copy(logits), rows, extent(logits, 1), id});
    return on.array<int32_t>(id, {rows});
}

py::array_t<float> embed(const FileWeight& weight, const std::vector<int32_t>& ids, int columns, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order);
    ops::Batch batch{};
    for (const int32_t id : ids) batch.token[batch.rows++] = id;
    on.use_scratch({ops::kMaxRows, 1, 1, 1});
    float* h = on.empty<float>(static_cast<size_t>(hip::row_bucket(batch.rows) * columns));
    on.backend.embed({on.backend.use_batch(batch, ops::Place::kForward), prepared(on, weight, columns), h});
    return on.array<float>(h, {batch.rows, columns});
}

// A kernel with a planted fault (emulator/faults.h) on 256 words.
py::array_t<int32_t> faulty(const std::string& kernel, const py::array_t<int32_t, py::array::c_style>& in, const std::string& order) {
    DeviceArrays on("emulated", order);
    auto& device = static_cast<hip::EmulatedDevice&>(on.backend.device());
    for (const hip::emulator::KernelEntry& entry : hip::emulator::faulty_kernels()) device.add_kernel(entry);
    if (in.size() != hip::emulator::kFaultThreads || !device.find(kernel)) throw py::value_error("256 words and a kernel of emulator/faults.cpp are wanted");
    const hip::emulator::FaultArgs args{on.copy(in), on.empty<int32_t>(hip::emulator::kFaultThreads)};
    device.launch(device.find(kernel), {}, hip::emulator::kFaultThreads, 0, &args, sizeof args);
    return on.array<int32_t>(args.out, {hip::emulator::kFaultThreads});
}

}  // namespace

void init_testing_hip(py::module_& testing) {
    py::module_ t = testing.def_submodule("hip", "Single ops of the HIP backend on an emulated device.");
    const auto device = py::arg("device") = "emulated";
    const auto order = py::arg("order") = "forward";
    t.def("norm", &norm, py::arg("x"), py::arg("weight"), py::arg("eps"), py::arg("select") = std::vector<int32_t>{}, device, order);
    t.def("swiglu", &swiglu, py::arg("gate"), py::arg("up"), device, order);
    t.def("matmul", &matmul, py::arg("weights"), py::arg("x"), py::arg("residual") = std::vector<Floats>{}, py::arg("shared") = false, device, order);
    t.def("argmax", &argmax, py::arg("logits"), device, order);
    t.def("embed", &embed, py::arg("weight"), py::arg("ids"), py::arg("columns"), device, order);
    t.def("faulty", &faulty, py::arg("kernel"), py::arg("words"), order);
    init_testing_hip_sequence(t);
    init_testing_hip_draft(t);
}

}  // namespace lucebox::bindings
