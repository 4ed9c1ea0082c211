// The step interface: methods of _core.Engine that run sequences, and the types they take.
#include "bindings/engine.h"
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace lucebox::bindings {

using engine::Judge;
using engine::SequenceParams;
using engine::StepResult;
using engine::StepWork;
using Masks = py::array_t<uint32_t, py::array::c_style | py::array::forcecast>;

namespace {

Judge judge_of(const std::string& name) {
    if (name == "off") return Judge::kOff;
    if (name == "match") return Judge::kMatch;
    LUCE_CHECK(name == "reject", kRequest, "speculative is \"", name, "\"; it may be match, reject or off");
    return Judge::kReject;
}

// The keyword arguments of SequenceParams; _core.pyi lists them.
SequenceParams make_params(const py::kwargs& arguments) {
    SequenceParams p;
    for (const auto& [key, value] : arguments) {
        const auto name = key.cast<std::string>();
        if (name == "temperature") p.sampling.temperature = value.cast<double>();
        else if (name == "top_k") p.sampling.top_k = value.cast<int64_t>();
        else if (name == "top_p") p.sampling.top_p = value.cast<double>();
        else if (name == "min_p") p.sampling.min_p = value.cast<double>();
        else if (name == "seed") p.sampling.seed = value.cast<uint64_t>();
        else if (name == "choice") p.choice = value.cast<uint32_t>();
        else if (name == "repetition_penalty") p.penalties.repetition = value.cast<double>();
        else if (name == "presence_penalty") p.penalties.presence = value.cast<double>();
        else if (name == "frequency_penalty") p.penalties.frequency = value.cast<double>();
        else if (name == "logit_bias") for (const auto& [id, bias] : value.cast<std::map<int32_t, float>>()) p.penalties.bias.emplace_back(id, bias);
        else if (name == "end_ids") p.end_ids = value.cast<std::vector<int32_t>>();
        else if (name == "min_tokens") p.min_tokens = value.cast<int>();
        else if (name == "logprobs") p.logprobs = value.cast<int>();
        else if (name == "speculative") p.judge = judge_of(value.cast<std::string>());
        else if (name == "adaptive") p.adaptive = value.cast<bool>();
        else if (name == "draft_width") p.draft_width = value.cast<int>();
        else if (name == "selector") p.selector = spec::selector_named(value.cast<std::string>());
        else if (name == "lookup") p.lookup = value.cast<bool>();
        else throw py::type_error("unknown argument " + name);
    }
    return p;
}

StepWork make_work(int slot, std::vector<int32_t> ids, bool emit, int limit, const std::optional<std::vector<int32_t>>& draft, const std::optional<Masks>& masks,
                   bool look, bool logits) {
    StepWork work{.slot = slot, .ids = std::move(ids), .emit = emit, .limit = limit, .draft = {}, .masks = {}, .look = look, .logits = logits};
    if (draft) {
        work.draft.emplace();
        work.draft->ids = *draft, work.draft->source = spec::Source::kGiven;
    }
    if (masks) work.masks.assign(masks->data(), masks->data() + masks->size());
    return work;
}

py::list logprobs_of(const StepResult& result) {
    py::list out;
    for (const spec::TokenLogprobs& token : result.logprobs) out.append(py::make_tuple(token.logprob, token.best));
    return out;
}

// [ids, k].
template <class T> py::array_t<T> by_row(const spec::Proposal& p, const std::vector<T>& values) {
    return py::array_t<T>({p.ids.size(), p.ids.empty() ? 0 : values.size() / p.ids.size()}, values.data());
}

// [tokens, vocab]; None where they were not asked for.
py::object logits_of(const StepResult& result) {
    if (result.logits.empty()) return py::none();
    const size_t tokens = result.token_ids.size();
    return py::array_t<float>({tokens, result.logits.size() / tokens}, result.logits.data());
}

}  // namespace

void init_decoder(py::class_<PyEngine>& engine_class, py::module_& m) {
    py::class_<SequenceParams>(m, "SequenceParams").def(py::init(&make_params));
    py::class_<StepWork>(m, "StepWork")
        .def(py::init(&make_work), py::arg("slot"), py::arg("ids") = std::vector<int32_t>{}, py::kw_only(), py::arg("emit") = false, py::arg("limit") = 1,
             py::arg("draft") = py::none(), py::arg("masks") = py::none(), py::arg("look") = false,
             py::arg("logits") = false);
    py::class_<spec::Proposal>(m, "Proposal")
        .def_readonly("ids", &spec::Proposal::ids)
        .def_readonly("confidence", &spec::Proposal::confidence)
        .def_property_readonly("candidates", [](const spec::Proposal& p) { return by_row(p, p.candidates); })
        .def_property_readonly("scores", [](const spec::Proposal& p) { return by_row(p, p.scores); })
        .def_property_readonly("source", [](const spec::Proposal& p) { return spec::to_string(p.source); });
    py::class_<StepResult>(m, "StepResult")
        .def_readonly("slot", &StepResult::slot)
        .def_readonly("error", &StepResult::error)
        .def_readonly("token_ids", &StepResult::token_ids)
        .def_readonly("drafted", &StepResult::drafted)
        .def_readonly("accepted", &StepResult::accepted)
        .def_property_readonly("source", [](const StepResult& r) { return spec::to_string(r.source); })
        .def_property_readonly("logprobs", &logprobs_of)
        .def_property_readonly("logits", &logits_of)
        .def_readonly("draft_ms", &StepResult::draft_ms)
        .def_readonly("verify_ms", &StepResult::verify_ms);
    engine_class
        .def("begin",
             [](PyEngine& e, int slot, const SequenceParams& params, const std::vector<int32_t>& prompt_ids) {
                 e.exclusive([&] { e.decoder->begin(slot, params, prompt_ids); });
             },
             py::arg("slot"), py::arg("params"), py::arg("prompt_ids"))
        .def("step",
             [](PyEngine& e, const std::vector<StepWork>& work) {
                 std::vector<StepResult> results;
                 e.exclusive([&] { results = e.decoder->step(work); });
                 return results;
             },
             py::arg("work"))
        .def("propose",
             [](PyEngine& e, const std::vector<std::pair<int, int>>& slots_and_limits) {
                 std::vector<spec::Proposal> proposals;
                 e.exclusive([&] { proposals = e.decoder->propose(slots_and_limits); });
                 return proposals;
             },
             py::arg("slots_and_limits"))
        .def("rows_needed", [](PyEngine& e, int slot, int limit) { return e.decoder->rows_needed(slot, limit); }, py::arg("slot"), py::arg("limit"));
}

}  // namespace lucebox::bindings
