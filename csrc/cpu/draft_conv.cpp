#include "cpu/backend.h"
#include "ops/math.h"

namespace lucebox::cpu {

// One row: out[c] = fma(base1 + delta1, before[c], (base0 + delta0) * x[c]); before is null in front of a span.
static void conv_row(const ops::DraftConv& op, int row, const float* x, const float* before, float* out) {
    const int groups = op.hidden / op.group;
    const float *base0 = op.base + static_cast<size_t>(op.side) * 2 * op.hidden, *base1 = base0 + op.hidden;
    const float *delta0 = op.delta + (static_cast<size_t>(row) * 4 + static_cast<size_t>(op.side) * 2) * groups, *delta1 = delta0 + groups;
    for (int g = 0; g < groups; g++) {
        const float d0 = delta0[g], d1 = delta1[g];
        for (int c = g * op.group; c < (g + 1) * op.group; c++)
            out[c] = ops::fma(base1[c] + d1, before ? before[c] : 0.0f, (base0[c] + d0) * x[c]);
    }
}

void CpuBackend::draft_conv(const ops::DraftConv& op) {
    pool_.run(op.batch->spans, [&](int s, int) {
        const ops::Span& span = op.batch->span[s];
        for (int row = span.first; row < span.first + span.rows; row++) {
            const float *x = op.x + static_cast<size_t>(row) * op.hidden, *before = row > span.first ? x - op.hidden : nullptr;
            if (op.h) {
                float part[ops::kMaxDraftHidden], *h = op.h + static_cast<size_t>(row) * op.hidden;
                conv_row(op, row, x, before, part);
                for (int c = 0; c < op.hidden; c++) h[c] = h[c] + part[c];
            } else {
                conv_row(op, row, x, before, op.y.x + static_cast<size_t>(row) * op.hidden);
                quantize_row(op.y, row);
            }
        }
    });
}

}  // namespace lucebox::cpu
