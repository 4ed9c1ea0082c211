#include "cpu/backend.h"
#include "quants/quants.h"

namespace lucebox::cpu {

void CpuBackend::embed(const ops::Embed& op) {
    const uint64_t row_bytes = gguf::row_bytes(op.weight.type, op.weight.columns);
    pool_.run(op.batch->rows, [&](int row, int) {
        quants::dequantize(op.weight.type, op.weight.data + static_cast<uint64_t>(op.batch->token[row]) * row_bytes,
                           op.h + static_cast<size_t>(row) * op.weight.columns, op.weight.columns);
    });
}

}  // namespace lucebox::cpu
