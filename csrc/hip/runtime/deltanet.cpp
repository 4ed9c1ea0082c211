#include "error.h"
#include "hip/runtime/backend.h"
#include "hip/runtime/plan.h"

namespace lucebox::hip {

void HipBackend::deltanet(const ops::Deltanet& op) {
    LUCE_CHECK(op.key_heads > 0 && op.value_heads % op.key_heads == 0, kRequest, op.value_heads, " value heads over ", op.key_heads, " key heads");
    const StepShape& shape = shape_of(op.batch);
    const DeltanetArgs args{op.batch, op.key_heads, op.value_heads, op.eps,  op.u,     op.alpha,  op.beta,    op.z,
                            op.conv,  op.dt,        op.a,           op.norm, op.state, op.ring_u, op.ring_ab, rows_of(op.y)};
    launch("luce_deltanet_step", grid(op.value_heads, 2, shape.spans), 256, args);
    launch("luce_deltanet_finish", grid(shape.rows, ceil_div(op.value_heads, 8)), 256, args);
}

}  // namespace lucebox::hip
