#include "hip/runtime/backend.h"
#include "hip/runtime/plan.h"

namespace lucebox::hip {

void HipBackend::swiglu(const ops::Swiglu& op) {
    if (op.rows == 0) return;
    launch("luce_swiglu", grid(ceil_div(op.ff, 1024), op.rows), 256, SwigluArgs{op.gate, op.up, op.ff, rows_of(op.y)});
}

}  // namespace lucebox::hip
