// The drafter's ops.
#include "error.h"
#include "hip/runtime/backend.h"
#include "hip/runtime/plan.h"
#include <cmath>

namespace lucebox::hip {

void HipBackend::tap(const ops::Tap& op) {
    if (op.rows) launch("luce_tap", grid(op.rows), 256, TapArgs{op.h, op.hidden, op.out, op.columns, op.offset, op.mended});
}

void HipBackend::quantize(const ops::Quantize& op) {
    LUCE_CHECK(op.columns % 32 == 0, kRequest, "rows of ", op.columns, " values; a multiple of 32 is quantised");
    if (op.count) launch("luce_quantize", grid(op.count), 256, QuantizeArgs{op.x, op.select, op.columns, rows_of(op.y)});
}

void HipBackend::draft_conv(const ops::DraftConv& op) {
    LUCE_CHECK(op.hidden % 32 == 0 && op.hidden % op.group == 0, kRequest, "a convolution of ", op.hidden, " channels in groups of ", op.group);
    const Rows y = op.h ? Rows{} : rows_of(op.y);
    if (op.rows) launch("luce_draft_conv", grid(op.rows, ceil_div(op.hidden, 8 * 128)), 256, DraftConvArgs{op.batch, op.hidden, op.group, op.side, op.x, op.delta, op.base, op.h, y});
}

static DraftAttentionArgs context_args(const ops::DraftContext& op) {
    DraftAttentionArgs args{};
    args.kv.batch = op.batch;
    args.kv.kv_heads = op.layout.kv_heads, args.kv.head_dim = args.kv.rope_dims = op.layout.head_dim;
    args.kv.eps = op.eps;
    args.kv.k = op.k, args.kv.v = op.v, args.kv.k_norm = op.k_norm;
    args.kv.pages = op.pages, args.kv.table = op.table, args.kv.max_pages = op.max_pages;
    return args;
}

void HipBackend::draft_context(const ops::DraftContext& op) {
    LUCE_CHECK(op.layout.form == ops::KvForm::F16 && op.layout.head_dim % 32 == 0 && op.layout.head_dim <= 256, kRequest, "a drafter's ring of heads of ",
               op.layout.head_dim, " dimensions; f16, a multiple of 32, at most 256");
    if (op.rows) launch("luce_draft_prepare", grid(op.rows, ceil_div(op.layout.kv_heads, 8)), 256, context_args(op));
}

void HipBackend::draft_attention(const ops::DraftAttention& op) {
    const ops::DraftContext& block = op.block;
    const int D = block.layout.head_dim, kv_heads = block.layout.kv_heads;
    LUCE_CHECK(block.layout.form == ops::KvForm::F16 && D % 32 == 0 && D <= 256 && op.heads % kv_heads == 0, kRequest, op.heads, " heads of ", D, " over ", kv_heads,
               " kv heads; f16, a multiple of 32, at most 256");
    LUCE_CHECK(op.heads == limits_.draft_heads && D == limits_.draft_head_dim, kRequest, op.heads, " heads of ", D, "; scratch was taken for ", limits_.draft_heads,
               " of ", limits_.draft_head_dim);
    // A row sees a window and the block, and its first key lies anywhere in the first part.
    const StepShape& shape = shape_of(block.batch);
    const int keys = op.window ? std::min(shape.context, op.window + block.rows) : shape.context;
    const AttentionPlan plan = plan_attention(block.rows, keys + ops::kPage);
    DraftAttentionArgs args = context_args(block);
    args.window = op.window, args.causal = op.causal;
    args.kv.heads = op.heads;
    args.kv.factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(D)));
    args.kv.qg = op.q, args.kv.q_norm = op.q_norm;
    args.kv.parts = parts_, args.kv.rows = block.rows, args.kv.part_keys = plan.part_keys, args.kv.part_step = 1;
    args.kv.y = rows_of(op.y);
    launch("luce_draft_prepare", grid(block.rows, ceil_div(op.heads + kv_heads, 8)), 256, args);
    const int parts = plan.part_keys == kAllKeys ? 1 : ceil_div(keys, plan.part_keys) + 1;
    args.kv.query_tiles = ceil_div(block.rows * (op.heads / kv_heads), kDraftQueries);
    const std::string kernel = join("luce_draft_part_d", D <= 128 ? 128 : 256, plan.part_keys == ops::kPage ? "_segment" : "_group");
    launch(kernel, grid(parts * args.kv.query_tiles, shape.spans, kv_heads), 32 * kDraftWaves, args);
    launch("luce_draft_join", grid(block.rows, ceil_div(op.heads, 8)), 256, args);
}

void HipBackend::top_k(const ops::TopK& op) {
    LUCE_CHECK(op.k >= 1 && op.k <= ops::kCandidates && op.k <= op.vocab && op.rows <= limits_.max_rows, kRequest, "the best ", op.k, " of ", op.vocab, " in ", op.rows,
               " rows");
    if (op.rows == 0) return;
    const TopKArgs args{op.logits, op.vocab, op.k, op.multiplier, op.softcap, candidates_, op.id, op.value};
    launch("luce_top_k_parts", grid(kTopKParts, op.rows), 256, args);
    launch("luce_top_k_join", grid(op.rows), 256, args);
}

// The codebooks' rows are looked up as an embedding's are.
void HipBackend::lattice(const ops::Lattice& op) {
    if (op.count == 0) return;
    const bool books = op.predecessor.data != nullptr;
    const size_t rows = static_cast<size_t>(op.count) * ops::kCandidates;
    auto* before = reinterpret_cast<int32_t*>(op.work);
    float* codes = op.work + rows;
    const LatticeArgs args{op.batch, op.count, books ? op.rank : 0, op.k, op.g, op.id, op.value, before, codes, op.edge};
    launch("luce_lattice_predecessors", grid(op.count), 32, args);
    const auto look_up = [&](const ops::Weight& w, const int32_t* ids, float* out) {
        launch(join("luce_embed_", std::string(gguf::type_info(w.type).name)), grid(op.count * ops::kCandidates), 256, EmbedArgs{op.batch, ids, w.packed, out, w.columns});
    };
    if (books) look_up(op.predecessor, before, codes), look_up(op.successor, op.id, codes + rows * static_cast<size_t>(op.rank));
    launch("luce_lattice_edges", grid(op.count, op.k), 256, args);
}

void HipBackend::walk(const ops::Walk& op) {
    launch("luce_walk", grid(shape_of(op.draft).spans), 32, WalkArgs{op.draft, op.verify, op.k, op.id, op.edge, op.path});
}

}  // namespace lucebox::hip
