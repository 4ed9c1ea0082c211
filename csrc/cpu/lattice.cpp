#include "cpu/backend.h"
#include "cpu/lanes.h"
#include "quants/quants.h"

namespace lucebox::cpu {

namespace {

constexpr int kMaxRank = 1024;

void codebook_row(const ops::Weight& w, int32_t id, float* out) {
    quants::dequantize(w.type, w.data + static_cast<uint64_t>(id) * gguf::row_bytes(w.type, w.columns), out, w.columns);
}

// Predecessor tokens of a row: the candidates of the row before it, or the anchor alone. Returns how many.
int predecessors(const ops::Lattice& op, int i, int32_t* out) {
    const int row = op.batch->want[i];
    if (ops::follows_anchor(*op.batch, row)) return out[0] = op.batch->token[row - 1], 1;
    std::copy_n(op.id + static_cast<size_t>(i - 1) * ops::kCandidates, op.k, out);
    return op.k;
}

void lattice_row(const ops::Lattice& op, int i) {
    const int32_t* id = op.id + static_cast<size_t>(i) * ops::kCandidates;
    const float* value = op.value + static_cast<size_t>(i) * ops::kCandidates;
    float* edge = op.edge + static_cast<size_t>(i) * ops::kCandidates * ops::kCandidates;
    int32_t before[ops::kCandidates];
    const int count = predecessors(op, i, before);
    if (!op.predecessor.data || id[0] < 0 || before[0] < 0) {  // no codebooks, or a row that holds a NaN
        for (int a = 0; a < count; a++) std::copy_n(value, op.k, edge + a * ops::kCandidates);
        return;
    }
    float successor[ops::kCandidates][kMaxRank], product[kMaxRank];
    for (int b = 0; b < op.k; b++) codebook_row(op.successor, id[b], successor[b]);
    const float* g = op.g + static_cast<size_t>(i) * op.rank;
    for (int a = 0; a < count; a++) {
        codebook_row(op.predecessor, before[a], product);
        for (int r = 0; r < op.rank; r++) product[r] = product[r] * g[r];
        for (int b = 0; b < op.k; b++) edge[a * ops::kCandidates + b] = value[b] + lane_sum([&](int r) { return product[r]; }, successor[b], op.rank);
    }
}

}  // namespace

void CpuBackend::lattice(const ops::Lattice& op) {
    pool_.run(op.count, [&](int i, int) { lattice_row(op, i); });
}

}  // namespace lucebox::cpu
