#include "cpu/backend.h"
#include <cmath>

namespace lucebox::cpu {

// KV head `head` of a row: norm and RoPE of the key, both stored at the row's position.
void CpuBackend::store_head(const ops::DraftContext& op, int row, int head) {
    const int D = op.layout.head_dim, position = op.batch->position[row];
    const size_t at = (static_cast<size_t>(row) * op.layout.kv_heads + static_cast<size_t>(head)) * D, angles = static_cast<size_t>(row) * (D / 2);
    kernels_.norm_row(op.k + at, op.k_norm, D, op.eps, op.k + at);
    kernels_.rotate(op.k + at, op.batch->rope_cos + angles, op.batch->rope_sin + angles, D / 2);
    const int32_t page = op.table[static_cast<size_t>(op.batch->slot[row]) * op.max_pages + position / ops::kPage];
    uint8_t* tile = op.pages + static_cast<size_t>(page) * op.layout.page_bytes() + op.layout.tile_at(head, position % ops::kPage / ops::kTile);
    kernels_.store_kv(op.layout, tile, op.k + at, position % ops::kTile, true);
    kernels_.store_kv(op.layout, tile + op.layout.tile_bytes(), op.v + at, position % ops::kTile, false);
}

void CpuBackend::draft_context(const ops::DraftContext& op) {
    const int heads = op.layout.kv_heads;
    pool_.run(op.batch->rows * heads, [&](int task, int) { store_head(op, task / heads, task % heads); });
}

// Query heads that share a kv head, of one row.
void CpuBackend::draft_group(const ops::DraftAttention& op, int row, int kv_head) {
    const ops::DraftContext& block = op.block;
    const ops::Batch& batch = *block.batch;
    const int D = block.layout.head_dim, heads = op.heads / block.layout.kv_heads;
    const size_t at = (static_cast<size_t>(row) * op.heads + static_cast<size_t>(kv_head) * heads) * D, angles = static_cast<size_t>(row) * (D / 2);
    for (int h = 0; h < heads; h++) {
        float* q = op.q + at + static_cast<size_t>(h) * D;
        kernels_.norm_row(q, op.q_norm, D, block.eps, q);
        kernels_.rotate(q, batch.rope_cos + angles, batch.rope_sin + angles, D / 2);
    }
    const ops::Span* span = batch.span;
    while (row >= span->first + span->rows) span++;
    const ops::Visible keys = ops::visible(*span, row, op.window, op.causal);
    kernels_.attend({.layout = block.layout,
                     .pages = block.pages,
                     .table = block.table + static_cast<size_t>(batch.slot[row]) * block.max_pages,
                     .first = keys.first,
                     .last = keys.last,
                     .kv_head = kv_head,
                     .heads = heads,
                     .gated = false,
                     .qg = op.q + at,
                     .q = nullptr,
                     .d = nullptr,
                     .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(D))),
                     .y = op.y.x + at});
    kernels_.quantize_row(op.y.x + at, heads * D, op.y.q + at, op.y.d + at / 32, op.y.sum + at / 16);
}

void CpuBackend::draft_attention(const ops::DraftAttention& op) {
    const int kv_heads = op.block.layout.kv_heads;
    draft_context(op.block);
    pool_.run(op.block.batch->rows * kv_heads, [&](int task, int) { draft_group(op, task / kv_heads, task % kv_heads); });
}

}  // namespace lucebox::cpu
