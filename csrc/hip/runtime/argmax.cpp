#include "error.h"
#include "hip/runtime/backend.h"

namespace lucebox::hip {

void HipBackend::argmax(const ops::Argmax& op) {
    if (op.rows == 0) return;
    LUCE_CHECK(op.rows <= limits_.max_rows, kRequest, "argmax of ", op.rows, " rows; scratch was taken for ", limits_.max_rows);
    const ArgmaxArgs args{op.logits, op.vocab, best_, op.id};
    launch("luce_argmax_parts", grid(kArgmaxParts, op.rows), 256, args);
    launch("luce_argmax_join", grid(op.rows), 32, args);
}

}  // namespace lucebox::hip
