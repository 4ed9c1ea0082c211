#include "bindings/engine.h"
#include "cpu/backend.h"
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace lucebox::bindings {

using engine::Engine;
using engine::Options;
using engine::Want;
using FilePointer = std::shared_ptr<const gguf::File>;

namespace {

using Batch = std::vector<std::pair<int, std::vector<int32_t>>>;

// Ctrl-C between batches: Python's handlers run, and what they raise stops the call.
void poll_signals() {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

std::unique_ptr<PyEngine> open_engine(const FilePointer& file, const Options& options, const py::object& progress) {
    Engine::Progress report;
    if (!progress.is_none())
        report = [&progress](double part) {
            const py::gil_scoped_acquire gil;
            if (PyErr_CheckSignals() != 0) throw py::error_already_set();
            progress(part);
        };
    const py::gil_scoped_release release;
    auto self = std::make_unique<PyEngine>();
    self->engine = std::make_unique<Engine>(file, options, report);
    self->decoder = std::make_unique<engine::Decoder>(*self->engine);
    return self;
}

py::object forward(PyEngine& self, const Batch& batch, const std::string& logits) {
    std::vector<engine::Request> requests;
    size_t tokens = 0;
    for (const auto& [slot, ids] : batch) requests.push_back({slot, ids}), tokens += ids.size();
    const size_t vocab = static_cast<size_t>(self.engine->config().vocab);
    const auto run = [&](Want want, void* out) { self.exclusive([&] { self.engine->forward(requests, want, out, poll_signals); }); };
    if (logits == "none") return run(Want::kNone, nullptr), py::none();
    if (logits == "argmax") {
        py::array_t<int32_t> ids(static_cast<py::ssize_t>(batch.size()));
        return run(Want::kArgmax, ids.mutable_data()), ids;
    }
    if (logits != "all" && logits != "last") throw py::value_error("logits is \"" + logits + "\"; it may be all, last, argmax or none");
    py::array_t<float> rows({logits == "all" ? tokens : batch.size(), vocab});
    return run(logits == "all" ? Want::kAll : Want::kLast, rows.mutable_data()), rows;
}

py::array_t<float> hidden(PyEngine& self, const std::vector<int32_t>& ids, const std::vector<int>& layers) {
    py::array_t<float> out({layers.size(), ids.size(), static_cast<size_t>(self.engine->config().hidden)});
    float* data = out.mutable_data();
    self.exclusive([&] { self.engine->hidden(ids, layers, data, poll_signals); });
    return out;
}

// The keyword arguments of Engine and plan; _core.pyi lists them.
Options make_options(const py::kwargs& arguments) {
    Options o;
    if (!arguments.contains("max_ctx")) throw py::type_error("max_ctx is required");
    for (const auto& [key, value] : arguments) {
        const auto name = key.cast<std::string>();
        if (name == "max_ctx") o.max_ctx = value.cast<int>();
        else if (name == "kv") o.kv = value.cast<std::string>();
        else if (name == "slots") o.slots = value.cast<int>();
        else if (name == "max_rows") o.max_rows = value.cast<int>();
        else if (name == "device") o.device = value.cast<std::string>();
        else if (name == "variant") o.variant = value.cast<std::string>();
        else if (name == "launch") o.launch = value.cast<std::string>();
        else if (name == "threads") o.threads = value.cast<int>();
        else if (name == "draft") o.draft = value.is_none() ? nullptr : value.cast<FilePointer>();
        else if (name == "draft_block_size") o.draft_block_size = value.cast<int>();
        else if (name == "kernels") o.kernels = value.cast<std::string>();
        else throw py::type_error("unknown argument " + name);
    }
    return o;
}

void init_cpu(py::module_& m) {
    m.def("cpu_features", [] {
        const cpu::Features f = cpu::features();
        py::dict d;
        d["avx2"] = f.avx2, d["fma"] = f.fma, d["f16c"] = f.f16c;
        d["avx512"] = f.avx512, d["avx512_vnni"] = f.avx512_vnni, d["avx512_vbmi"] = f.avx512_vbmi;
        return d;
    });
    m.def("variants", [] {
        std::vector<std::string> names;
        for (const cpu::Kernels* kernels : cpu::variants()) names.push_back(kernels->name);
        return names;
    });
    m.def("physical_cores", &cpu::physical_cores);
}

}  // namespace

void init_engine(py::module_& m) {
    init_cpu(m);
    py::class_<ops::PlanEntry>(m, "PlanEntry")
        .def_readonly("name", &ops::PlanEntry::name)
        .def_readonly("nbytes", &ops::PlanEntry::bytes)
        .def_property_readonly("kind", [](const ops::PlanEntry& e) { return e.mapped ? "mapped" : "allocated"; })
        .def("__repr__", [](const ops::PlanEntry& e) { return join("PlanEntry(", e.name, ", ", e.bytes, ")"); });
    m.def("plan", [](const FilePointer& file, const py::kwargs& options) { return Engine::plan(*file, make_options(options)); }, py::arg("file"));
    py::class_<PyEngine> engine_class(m, "Engine");
    engine_class
        .def(py::init([](const FilePointer& file, const py::object& progress, const py::kwargs& options) {
                 return open_engine(file, make_options(options), progress);
             }),
             py::arg("file"), py::kw_only(), py::arg("progress") = py::none())
        .def_property_readonly("info", [](const PyEngine& e) { return e.engine->config(); })
        .def_property_readonly("device", [](const PyEngine& e) { return e.engine->options().device; })
        .def_property_readonly("launch", [](const PyEngine& e) { return e.engine->options().launch; })
        .def_property_readonly("variant", [](const PyEngine& e) { return e.engine->options().variant; })
        .def_property_readonly("threads", [](const PyEngine& e) { return e.engine->options().threads; })
        .def_property_readonly("max_ctx", [](const PyEngine& e) { return e.engine->options().max_ctx; })
        .def_property_readonly("kv", [](const PyEngine& e) { return e.engine->options().kv; })
        .def_property_readonly("slots", [](const PyEngine& e) { return e.engine->options().slots; })
        .def_property_readonly("max_rows", [](const PyEngine& e) { return e.engine->options().max_rows; })
        .def_property_readonly("draft_block_size", [](const PyEngine& e) { return e.engine->options().draft_block_size; })
        .def_property_readonly("mended_taps", [](PyEngine& e) {
            int count = 0;
            e.exclusive([&] { count = e.engine->mended_taps(); });
            return count;
        })
        .def("allocated", [](const PyEngine& e) { return e.engine->allocated(); })
        .def("length",
             [](PyEngine& e, int slot) {
                 LUCE_CHECK(slot >= 0 && slot < e.engine->options().slots, kRequest, "slot is ", slot, "; the engine has ", e.engine->options().slots);
                 return e.engine->length(slot);
             },
             py::arg("slot"))
        .def("reset", [](PyEngine& e, int slot) { e.exclusive([&] { e.decoder->end(slot); }); }, py::arg("slot"))
        .def("forward", &forward, py::arg("batch"), py::arg("logits") = "last")
        .def("hidden", &hidden, py::arg("ids"), py::arg("layers"))
        .def_property_readonly("free_pages", [](const PyEngine& e) { return e.engine->free_pages(); });
    init_decoder(engine_class, m);
}

}  // namespace lucebox::bindings
