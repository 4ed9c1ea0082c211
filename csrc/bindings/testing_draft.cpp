// lucebox._core.testing: what a drafter gives before a path is chosen, and the choice alone.
#include "bindings/engine.h"
#include "bindings/testing.h"
#include "bindings/testing_hip.h"
#include "spec/accept.h"
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

// (path, tokens of the verified rows) of ops/walk.h, for blocks of (rows, verified rows) each.
py::tuple walk_on(ops::Backend& backend, const py::array_t<int32_t, py::array::c_style>& candidates, const Floats& edges, int k,
                  const std::vector<std::pair<int, int>>& blocks) {
    ops::Batch draft{}, verify{};
    for (const auto& [rows, verified] : blocks) {
        draft.span[draft.spans++] = {.slot = 0, .first = draft.rows, .rows = rows, .position = 0, .pending = 0, .commit = false};
        verify.span[verify.spans++] = {.slot = 0, .first = verify.rows, .rows = verified, .position = 0, .pending = 0, .commit = false};
        for (int r = 1; r < rows; r++) draft.want[draft.wanted++] = draft.rows + r;
        draft.rows += rows;
        for (int r = 0; r < verified; r++) verify.token[verify.rows++] = -7;
    }
    const auto on_device = [&](const auto& array) {
        void* to = backend.allocate(static_cast<uint64_t>(array.nbytes()));
        backend.upload(to, array.data(), static_cast<uint64_t>(array.nbytes()));
        return to;
    };
    py::array_t<int32_t> path(draft.wanted), tokens(verify.rows);
    auto* out = static_cast<int32_t*>(backend.allocate(static_cast<uint64_t>(path.nbytes())));
    const ops::Walk op{.draft = backend.use_batch(draft, ops::Place::kDraft),
                       .verify = backend.use_batch(verify),
                       .k = k,
                       .id = static_cast<const int32_t*>(on_device(candidates)),
                       .edge = static_cast<const float*>(on_device(edges)),
                       .path = out};
    backend.walk(op);
    backend.download(path.mutable_data(), out, static_cast<uint64_t>(path.nbytes()));
    backend.download(tokens.mutable_data(), op.verify->token, static_cast<uint64_t>(tokens.nbytes()));
    return py::make_tuple(path, tokens);
}

py::tuple walk(const py::array_t<int32_t, py::array::c_style>& candidates, const Floats& edges, int k, const std::vector<std::pair<int, int>>& blocks,
               const std::string& device) {
    if (device == "cpu") {
        CpuBackend backend(cpu::choose("portable"), 1);
        return walk_on(backend, candidates, edges, k, blocks);
    }
    DeviceArrays on(device, "shuffled");
    on.use_scratch({ops::kMaxRows, 1, 1, 1});
    return walk_on(on.backend, candidates, edges, k, blocks);
}

// (path behind each anchor, argmax of the verified rows) of blocks (slot, anchor, rows, verified rows), as one step.
py::tuple speculate(PyEngine& e, const std::vector<std::tuple<int, int32_t, int, int>>& asked) {
    std::vector<engine::Block> blocks;
    int paths = 0, verified = 0;
    for (const auto& [slot, anchor, rows, verify] : asked) {
        blocks.push_back({slot, anchor, rows, verify});
        paths += rows - 1, verified += verify;
    }
    py::array_t<int32_t> path(paths), best(verified);
    int32_t *to_path = path.mutable_data(), *to_best = best.mutable_data();
    e.exclusive([&] { e.engine->speculate(blocks, to_path, to_best); });
    return py::make_tuple(path, best);
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

// A chain of tokens over two tables of logits [vocab, vocab], the target's and a drafter's: row a holds the logits behind token a.
struct Toy {
    const Floats& target;
    const Floats& drafter;
    spec::SamplingParams params;
    int width;          // tokens drafted at a time; 0: none
    bool point_mass;    // drafts are taken as they are, not drawn

    spec::Proposal draft(int32_t anchor, uint32_t position, uint32_t choice) const {
        const int k = ops::kCandidates;
        std::vector<int32_t> id;
        std::vector<float> edge(static_cast<size_t>(width * k * k));
        for (int row = 0; row < width; row++)
            for (int b = 0; b < k; b++) id.push_back((5 * row + b) % extent(drafter, 0));
        for (int row = 0; row < width; row++)
            for (int a = 0; a < k; a++)
                for (int b = 0; b < k; b++) {
                    const int32_t before = row ? id[static_cast<size_t>((row - 1) * k + a)] : anchor;
                    edge[static_cast<size_t>((row * k + a) * k + b)] = drafter.at(before, id[static_cast<size_t>(row * k + b)]);
                }
        const spec::Lattice lattice{id.data(), edge.data(), width, k};
        return point_mass ? spec::select(lattice, spec::Selector::kWalk) : spec::draw(lattice, params.temperature, params.seed, position, choice);
    }
    spec::Distribution law(int32_t before) const { return spec::distribution(target.data(before, 0), static_cast<size_t>(extent(target, 1)), params); }

    // Appends what one step gives behind the last token.
    void step(std::vector<int32_t>& text, uint32_t choice) const {
        const auto position = [&] { return static_cast<uint32_t>(text.size()); };
        if (width == 0) return text.push_back(spec::draw(law(text.back()), params.seed, position(), choice));
        const spec::Proposal proposal = draft(text.back(), position(), choice);
        for (size_t row = 0; row < proposal.ids.size(); row++) {
            text.push_back(spec::accept_or_draw(law(text.back()), proposal, row, params.seed, position(), choice));
            if (text.back() != proposal.ids[row]) return;
        }
        text.push_back(spec::draw(law(text.back()), params.seed, position(), choice));
    }
};

// Draws [draws, tokens] behind token 0.
py::array_t<int32_t> speculative_chain(const Floats& target, const Floats& drafter, const spec::SamplingParams& params, int width, bool point_mass, int draws,
                                       int tokens) {
    const Toy toy{target, drafter, params, width, point_mass};
    py::array_t<int32_t> out({draws, tokens});
    for (int i = 0; i < draws; i++) {
        std::vector<int32_t> text{0};
        while (static_cast<int>(text.size()) <= tokens) toy.step(text, static_cast<uint32_t>(i));
        std::copy_n(text.begin() + 1, tokens, out.mutable_data(i, 0));
    }
    return out;
}

}  // namespace

void init_testing_draft(py::module_& t) {
    t.def("draft", &draft, py::arg("engine"), py::arg("slot"), py::arg("anchor"), py::arg("rows"));
    t.def("select", &select, py::arg("candidates"), py::arg("edges"), py::arg("k"), py::arg("selector") = "walk", py::arg("temperature") = 0.0,
          py::arg("seed") = 0, py::arg("position") = 0);
    t.def("speculative_chain", &speculative_chain, py::arg("target"), py::arg("drafter"), py::arg("params"), py::arg("width"), py::arg("point_mass"),
          py::arg("draws"), py::arg("tokens"));
    t.def("look_up", &look_up, py::arg("ids"));
    t.def("walk", &walk, py::arg("candidates"), py::arg("edges"), py::arg("k"), py::arg("blocks"), py::arg("device") = "cpu");
    t.def("speculate", &speculate, py::arg("engine"), py::arg("blocks"));
}

}  // namespace lucebox::bindings
