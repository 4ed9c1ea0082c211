#include "error.h"
#include "hip/runtime/backend.h"
#include "hip/runtime/pack.h"
#include "hip/runtime/plan.h"

namespace lucebox::hip {

namespace {
constexpr int kFloatOutputs = 8, kFloatRows = 4;  // of a workgroup
}

// Weights of one type are one launch.
void HipBackend::matmul(const ops::Matmul& op) {
    if (op.rows == 0) return;
    bool done[4] = {};
    for (int i = 0; i < op.weights; i++) {
        const gguf::Type type = op.weight[i].type;
        if (done[i]) continue;
        const bool floats = gguf::is_float(type);
        const int unit_bytes = floats ? 0 : static_cast<int>(hip::packed_bytes(type, 32, 256));
        MatmulPlan plan = plan_matmul(device_->arch(), device_->shared_bytes(), op.rows, op.acts.columns, unit_bytes);
        int same[4], outputs[4], count = 0;  // the weights of this type
        for (int j = i; j < op.weights; j++)
            if (op.weight[j].type == type) done[j] = true, outputs[count] = op.weight[j].rows, same[count++] = j;
        if (!floats && wide_matmul(device_->arch(), plan.rows))
            plan = widen_matmul(plan, device_->shared_bytes(), op.acts.columns, unit_bytes, std::span(outputs, count), device_->compute_units());
        MatmulArgs args{.x = rows_of(op.acts), .rows = op.rows, .parts = 0, .waves = 0, .tiles = plan.tiles, .slots = 0, .residual = op.residual, .splits = 1,
                        .blocks = 0, .partial = partial_, .arrived = arrived_, .part = {}};
        int blocks = 0;
        for (int j : std::span(same, count)) {
            const ops::Weight& w = op.weight[j];
            LUCE_CHECK(w.packed && w.columns == op.acts.columns, kRequest, "a weight of ", w.columns, " columns times rows of ", op.acts.columns,
                       w.packed ? "" : "; and it was not prepared");
            args.part[args.parts++] = {w.packed, op.y[j], w.rows, blocks};
            blocks += ceil_div(w.rows, floats ? kFloatOutputs : plan.outputs);
        }
        const std::string kernel = join("luce_matmul_", std::string(gguf::type_info(type).name));
        if (floats) {
            launch(kernel, grid(blocks, ceil_div(op.rows, kFloatRows)), 256, args);
            continue;
        }
        if (partial_ && plan.tiles == 0) plan = split_matmul(plan, blocks, op.acts.columns, device_->compute_units());
        args.waves = plan.waves, args.slots = plan.slots, args.splits = plan.splits, args.blocks = blocks;
        launch(join(kernel, "_r", plan.rows), grid(blocks, plan.row_groups, plan.splits), 32 * plan.waves, args, plan.shared_bytes());
    }
}

}  // namespace lucebox::hip
