#include "cpu/backend.h"

namespace lucebox::cpu {

void CpuBackend::tap(const ops::Tap& op) {
    pool_.run(op.rows, [&](int row, int) {
        const float* h = op.h + static_cast<size_t>(row) * op.hidden;
        float* out = op.out + static_cast<size_t>(row) * op.columns + op.offset;
        int32_t changed = 0;
        for (int i = 0; i < op.hidden; i++) {
            const float x = h[i], y = x != x ? 0.0f : x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
            changed += !(x == y);
            out[i] = y;
        }
        op.mended[row] += changed;
    });
}

}  // namespace lucebox::cpu
