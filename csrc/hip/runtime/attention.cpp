#include "error.h"
#include "hip/runtime/backend.h"
#include "hip/runtime/plan.h"
#include <cmath>

namespace lucebox::hip {

void HipBackend::attention(const ops::Attention& op) {
    const int D = op.layout.head_dim, kv_heads = op.layout.kv_heads;
    LUCE_CHECK(D % 32 == 0 && D <= 256, kRequest, "heads of ", D, " dimensions; a multiple of 32, at most 256");
    LUCE_CHECK(kv_heads > 0 && op.heads % kv_heads == 0, kRequest, op.heads, " heads over ", kv_heads, " kv heads");
    LUCE_CHECK(op.heads == limits_.heads && D == limits_.head_dim, kRequest, op.heads, " heads of ", D, "; scratch was taken for ", limits_.heads, " of ",
               limits_.head_dim);
    const StepShape& shape = shape_of(op.batch);
    const AttentionPlan plan = plan_attention(shape.rows, shape.context);
    const int group = op.heads / kv_heads, query_tiles = ceil_div(shape.rows * group, 16);
    const bool tiled = tiled_attention(device_->arch(), op.layout);
    AttentionArgs args{.batch = op.batch,
                             .heads = op.heads,
                             .kv_heads = kv_heads,
                             .head_dim = D,
                             .rope_dims = op.rope_dims,
                             .eps = op.eps,
                             .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(D))),
                             .qg = op.qg,
                             .k = op.k,
                             .v = op.v,
                             .q_norm = op.q_norm,
                             .k_norm = op.k_norm,
                             .pages = op.pages,
                             .table = op.table,
                             .max_pages = op.max_pages,
                             .q = op.y.q,
                             .q_scale = op.y.d,
                             .parts = parts_,
                             .rows = shape.rows,
                             .part_keys = plan.part_keys,
                             .part_step = 1,
                             .query_tiles = query_tiles,
                             .y = rows_of(op.y)};
    const std::string form = op.layout.form == ops::KvForm::Q8_0 ? "q8_0" : op.layout.form == ops::KvForm::F16 ? "f16" : "f32";
    launch(join("luce_attention_prepare_", form), grid(shape.rows, ceil_div(op.heads + kv_heads, 8)), 256, args);
    if (tiled) {
        const std::string kernel = join("luce_attention_tile_q8_0_d", D, plan.part_keys == ops::kPage ? "_segment" : "_group");
        launch(kernel, grid(plan.parts * query_tiles, shape.spans, kv_heads), 256, args, attention_stream_bytes(device_->arch(), D));
    } else {
        launch(join("luce_attention_part_", form), grid(plan.parts, shape.rows, kv_heads), 32 * std::min(8, group), args);
    }
    if (plan.part_keys == ops::kPage && plan.parts > 16) {
        launch("luce_attention_join_groups", grid(shape.rows, ceil_div(op.heads, 8), ceil_div(plan.parts, 16)), 256, args);
        args.part_keys = 4096, args.part_step = 16;
    }
    launch("luce_attention_join", grid(shape.rows, ceil_div(op.heads, 8)), 256, args);
}

}  // namespace lucebox::hip
