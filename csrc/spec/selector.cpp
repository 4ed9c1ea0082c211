#include "spec/selector.h"
#include "error.h"
#include "ops/walk.h"
#include <algorithm>
#include <array>
#include <cmath>

namespace lucebox::spec {

namespace {

using Row = std::array<double, Lattice::kStride>;

// softmax(edges / temperature) over the candidates.
Row probabilities(const float* edges, int k, double temperature = 1) {
    const double top = static_cast<double>(*std::max_element(edges, edges + k));
    Row p{};
    double sum = 0;
    for (int b = 0; b < k; b++) sum += p[static_cast<size_t>(b)] = exp((static_cast<double>(edges[b]) - top) / temperature);
    for (double& x : p) x /= sum;
    return p;
}

// Rows in front of the first that is no number.
int usable_rows(const Lattice& l) {
    for (int row = 0; row < l.rows; row++)
        if (!ops::row_is_usable(l.id + row * Lattice::kStride, l.edges(row, 0), row ? l.k : 1, l.k)) return row;
    return l.rows;
}

std::vector<int> walk(const Lattice& l, int rows) {
    std::vector<int> path;
    for (int row = 0; row < rows; row++) {
        path.push_back(ops::best_edge(l.edges(row, row ? path.back() : 0), l.k));
    }
    return path;
}

// Both searches go backwards over the rows: the value of a candidate is that of the best path behind it.
std::vector<int> search(const Lattice& l, int rows, bool reach) {
    std::vector<std::array<int, Lattice::kStride>> pick(static_cast<size_t>(rows));
    Row value{};
    for (int row = rows - 1; row >= 0; row--) {
        Row before{};
        for (int a = 0; a < (row ? l.k : 1); a++) {
            const Row p = probabilities(l.edges(row, a), l.k);
            double best = -INFINITY;
            for (int b = 0; b < l.k; b++) {
                const auto at = static_cast<size_t>(b);
                const double gain = reach ? p[at] * (1 + value[at]) : std::log(p[at]) + value[at];
                if (gain > best) best = gain, pick[static_cast<size_t>(row)][static_cast<size_t>(a)] = b;
            }
            before[static_cast<size_t>(a)] = best;
        }
        value = before;
    }
    std::vector<int> path;
    for (int row = 0; row < rows; row++) path.push_back(pick[static_cast<size_t>(row)][row ? static_cast<size_t>(path.back()) : 0]);
    return path;
}

Proposal begin(const Lattice& l, int rows) {
    Proposal out;
    out.source = rows ? Source::kDrafter : Source::kNone;
    out.k = l.k;
    return out;
}

void keep_scores(const Lattice& l, int row, int before, Proposal& out) {
    const int32_t* id = l.id + row * Lattice::kStride;
    const float* edges = l.edges(row, before);
    out.candidates.insert(out.candidates.end(), id, id + l.k);
    out.scores.insert(out.scores.end(), edges, edges + l.k);
}

}  // namespace

Selector selector_named(const std::string& name) {
    if (name == "walk") return Selector::kWalk;
    if (name == "best-first") return Selector::kBestFirst;
    LUCE_CHECK(name == "reach", kRequest, "selector is \"", name, "\"; it may be walk, best-first or reach");
    return Selector::kReach;
}

Proposal select(const Lattice& l, Selector selector) {
    const int rows = usable_rows(l);
    const std::vector<int> path = selector == Selector::kWalk ? walk(l, rows) : search(l, rows, selector == Selector::kReach);
    Proposal out = begin(l, rows);
    for (int row = 0; row < rows; row++) {
        const int b = path[static_cast<size_t>(row)];
        out.ids.push_back(l.id[row * Lattice::kStride + b]);
        const Row p = probabilities(l.edges(row, row ? path[static_cast<size_t>(row) - 1] : 0), l.k);
        out.confidence.push_back(static_cast<float>(p[static_cast<size_t>(b)]));
        keep_scores(l, row, row ? path[static_cast<size_t>(row) - 1] : 0, out);
    }
    return out;
}

Proposal draw(const Lattice& l, double temperature, uint64_t seed, uint32_t position, uint32_t choice) {
    const int rows = usable_rows(l);
    Proposal out = begin(l, rows);
    int before = 0;
    for (int row = 0; row < rows; row++) {
        const Row p = probabilities(l.edges(row, before), l.k, temperature);
        Distribution q;
        q.id.assign(l.id + row * Lattice::kStride, l.id + row * Lattice::kStride + l.k);
        q.weight.assign(p.begin(), p.begin() + l.k);
        for (const double weight : q.weight) q.sum += weight;
        const int32_t token = q.at(uniform(seed, position + static_cast<uint32_t>(row), choice, Purpose::kDraft));
        keep_scores(l, row, before, out);
        before = static_cast<int>(std::ranges::find(q.id, token) - q.id.begin());
        out.ids.push_back(token);
        out.confidence.push_back(static_cast<float>(q.probability(token)));
        out.drawn_from.push_back(std::move(q));
    }
    return out;
}

}  // namespace lucebox::spec
