#include "cpu/backend.h"
#include "ops/math.h"

namespace lucebox::cpu {

static void top_k_row(const ops::TopK& op, const float* logits, int32_t* id, float* value) {
    const bool plain = op.multiplier == 1 && op.softcap == 0;
    int count = 0;
    for (int j = op.k; j < ops::kCandidates; j++) id[j] = -1;
    for (int i = 0; i < op.vocab; i++) {
        float x = logits[i];
        if (x != x) {
            for (int j = 0; j < op.k; j++) id[j] = -1, value[j] = ops::quiet_nan();
            return;
        }
        if (!plain) {
            x = x * op.multiplier;
            if (op.softcap != 0) x = op.softcap * ops::tanh(x / op.softcap);
        }
        if (count == op.k && !(x > value[count - 1])) continue;  // of equal values the earlier id is kept
        int at = count < op.k ? count++ : count - 1;
        for (; at > 0 && x > value[at - 1]; at--) id[at] = id[at - 1], value[at] = value[at - 1];
        id[at] = i, value[at] = x;
    }
}

void CpuBackend::top_k(const ops::TopK& op) {
    pool_.run(op.rows, [&](int row, int) {
        const size_t at = static_cast<size_t>(row) * ops::kCandidates;
        top_k_row(op, op.logits + static_cast<size_t>(row) * op.vocab, op.id + at, op.value + at);
    });
}

}  // namespace lucebox::cpu
