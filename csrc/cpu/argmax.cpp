#include "cpu/backend.h"
#include "cpu/portable.h"

namespace lucebox::cpu {

int32_t portable_argmax_row(const float* logits, int n) {
    int32_t best = 0;
    for (int i = 0; i < n; i++) {
        if (logits[i] != logits[i]) return -1;
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

void CpuBackend::argmax(const ops::Argmax& op) {
    pool_.run(op.rows, [&](int row, int) { op.id[row] = kernels_.argmax_row(op.logits + static_cast<size_t>(row) * op.vocab, op.vocab); });
}

}  // namespace lucebox::cpu
