#include "error.h"
#include "hip/runtime/backend.h"

namespace lucebox::hip {

void HipBackend::norm(const ops::Norm& op) {
    if (op.count == 0) return;
    LUCE_CHECK(op.hidden % 32 == 0 && op.hidden <= 16384, kRequest, "norm of ", op.hidden, " values; a multiple of 32, at most 16384");
    launch("luce_norm", grid(op.count), 32 * kNormWaves, NormArgs{op.x, op.weight, op.select, op.hidden, op.eps, rows_of(op.y)});
}

}  // namespace lucebox::hip
