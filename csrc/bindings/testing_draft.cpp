// lucebox._core.testing: what a drafter gives before a path is chosen, and the choice alone.
#include "bindings/engine.h"
#include "bindings/testing.h"
#include "spec/lookup.h"

namespace lucebox::bindings {

namespace {

// (candidates [rows - 1, 16], edges [rows - 1, 16, 16]) of a block behind the slot's committed tokens.
py::tuple draft(PyEngine& e, int slot, int32_t anchor, int rows) {
    py::array_t<int32_t> candidates({rows - 1, ops::kCandidates});
    py::array_t<float> edges({rows - 1, ops::kCandidates, ops::kCandidates});
    int32_t* ids = candidates.mutable_data();
    float* scores = edges.mutable_data();
    const engine::Block block{slot, anchor, rows};
    e.exclusive([&] { e.engine->draft({&block, 1}, ids, scores); });
    return py::make_tuple(candidates, edges);
}

// (ids, confidence) of the chosen path, or, with a temperature, of a drawn one with its distributions.
py::tuple select(const py::array_t<int32_t, py::array::c_style>& candidates, const Floats& edges, int k, const std::string& selector, double temperature,
                 uint64_t seed, uint32_t position) {
    const spec::Lattice lattice{candidates.data(), edges.data(), extent(candidates, 0), k};
    const spec::Proposal p = temperature > 0 ? spec::draw(lattice, temperature, seed, position, 0) : spec::select(lattice, spec::selector_named(selector));
    py::list q;
    for (const spec::Distribution& d : p.drawn_from) q.append(py::make_tuple(d.id, d.weight));
    return py::make_tuple(p.ids, p.confidence, q);
}

// (length, continuation) of the match that a history of these tokens has for its end.
std::pair<int, std::vector<int32_t>> look_up(const std::vector<int32_t>& ids) {
    spec::History history;
    history.append(ids);
    const spec::History::Match match = history.find();
    return {match.length, {match.next.begin(), match.next.end()}};
}

}  // namespace

void init_testing_draft(py::module_& t) {
    t.def("draft", &draft, py::arg("engine"), py::arg("slot"), py::arg("anchor"), py::arg("rows"));
    t.def("select", &select, py::arg("candidates"), py::arg("edges"), py::arg("k"), py::arg("selector") = "walk", py::arg("temperature") = 0.0,
          py::arg("seed") = 0, py::arg("position") = 0);
    t.def("look_up", &look_up, py::arg("ids"));
}

}  // namespace lucebox::bindings
