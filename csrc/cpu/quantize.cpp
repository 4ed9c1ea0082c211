#include "cpu/backend.h"

namespace lucebox::cpu {

void CpuBackend::quantize(const ops::Quantize& op) {
    pool_.run(op.count, [&](int i, int) {
        const float* x = op.x + static_cast<size_t>(op.select[i]) * op.columns;
        memcpy(op.y.x + static_cast<size_t>(i) * op.columns, x, static_cast<size_t>(op.columns) * sizeof(float));
        quantize_row(op.y, i);
    });
}

}  // namespace lucebox::cpu
