// ops/draft_attention.h: a wave a query head and part of its keys, then the parts in order. Parts are pages, groups, or all a row sees; the first
// part of a row holds its first key.
#pragma once
#include "hip/attention.h"
#include "hip/draft.h"
#include "ops/draft_attention.h"

namespace lucebox::hip {
namespace {

LUCE_DEVICE ops::Visible visible_keys(const DraftAttentionArgs& a, int row) {
    return ops::visible(span_of(*a.kv.batch, row), row, a.window, a.causal != 0);
}

// Grid x: rows, y: eights of heads and kv heads; with no heads the keys and values alone.
LUCE_DEVICE void draft_prepare(const DraftAttentionArgs& a) {
    LUCE_SHARED(Float4, memory, kPartWaves * kMaxHeadDim / 4);
    const AttentionArgs& kv_args = a.kv;
    const int row = block_id(), wave = thread_id() / 32, head = block_id_y() * kPartWaves + wave, D = kv_args.head_dim, kv = head - kv_args.heads;
    if (row >= kv_args.batch->rows || kv >= kv_args.kv_heads) return;
    float* buffer = reinterpret_cast<float*>(memory) + wave * kMaxHeadDim;
    const size_t kv_at = (static_cast<size_t>(row) * static_cast<size_t>(kv_args.kv_heads) + static_cast<size_t>(kv < 0 ? 0 : kv)) * static_cast<size_t>(D);
    const size_t q_at = (static_cast<size_t>(row) * static_cast<size_t>(kv_args.heads) + static_cast<size_t>(head)) * static_cast<size_t>(D);
    norm_and_rotate(kv < 0 ? kv_args.qg + q_at : kv_args.k + kv_at, kv < 0 ? kv_args.q_norm : kv_args.k_norm, kv_args, row, buffer);
    if (kv < 0) return;
    const int position = kv_args.batch->position[row];
    uint8_t* tile = tile_of<KvForm::F16>(kv_args, kv_args.batch->slot[row], kv, position);
    for (int dim = 4 * lane_id(); dim < D; dim += 128) {
        float v[4], value[4];
        load4(v, buffer + dim), load4(value, kv_args.v + kv_at + dim);
        store_kv<KvForm::F16>(tile, D, position % kTile, dim, v, Quantized{}, true);
        store_kv<KvForm::F16>(tile + tile_bytes<KvForm::F16>(D), D, position % kTile, dim, value, Quantized{}, false);
    }
}

// One segment from key `start` on; keys outside first .. last take no part.
LUCE_DEVICE Part attend_visible(const AttentionArgs& a, const Query& q, int slot, int kv_head, int start, const ops::Visible& keys, uint32_t* words) {
    Part s = {};
    const int lane = lane_id();
    for (int t = start; t < start + ops::kPage && t <= keys.last; t += kTile) {
        if (t + kTile <= keys.first) continue;
        const uint8_t* tile = tile_of<KvForm::F16>(a, slot, kv_head, t);
        const bool seen = t + lane >= keys.first && t + lane <= keys.last;
        float p = score<KvForm::F16>(a, q, tile), top = seen ? p : ops::from_bits(0xff800000u);
        top = wave_join(top, [](float v, int d) { return ops::max(v, shfl_xor(v, d)); });
        if (!s.any) s.any = true, s.m = top;
        if (top > s.m) {
            const float c = ops::exp(s.m - top);
            s.m = top, s.l = s.l * c;
            LUCE_UNROLL
            for (int i = 0; i < kMaxBlocks; i++) s.o[i] = s.o[i] * c;
        }
        p = seen ? ops::exp(p - s.m) : 0.0f;
        s.l = s.l + wave_sum(p);
        const uint8_t* values = tile + tile_bytes<KvForm::F16>(a.head_dim);
        wave_barrier();
        words[lane] = ops::to_bits(p);
        wave_barrier();
        const int from = keys.first > t ? keys.first - t : 0, end = keys.last + 1 - t < kTile ? keys.last + 1 - t : kTile;
        for (int i = from; i < end; i++)
            LUCE_UNROLL
            for (int b = 0; b < kMaxBlocks; b++)
                if (b < a.head_dim / 32) s.o[b] = ops::fma(ops::from_bits(words[i]), read_value<KvForm::F16>(values, i * a.head_dim + 32 * b + lane), s.o[b]);
    }
    return s;
}

// Grid x: parts, y: rows, z: kv heads.
LUCE_DEVICE void draft_part(const DraftAttentionArgs& d) {
    LUCE_SHARED(uint32_t, memory, kPartWaves * 32);
    const AttentionArgs& a = d.kv;
    const int row = block_id_y(), kv_head = block_id_z(), group = a.heads / a.kv_heads, lane = lane_id();
    if (row >= a.batch->rows) return;
    const ops::Visible keys = visible_keys(d, row);
    const int part = block_id(), start = (keys.first / a.part_keys + part) * a.part_keys, slot = a.batch->slot[row];
    if (start > keys.last) return;
    const int first = start > keys.first ? start : keys.first / ops::kPage * ops::kPage;
    for (int in = thread_id() / 32; in < group; in += kPartWaves) {
        const int head = kv_head * group + in;
        const size_t at = (static_cast<size_t>(row) * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) * static_cast<size_t>(a.head_dim);
        const Query q{a.qg + at, nullptr, nullptr};
        Part all = {}, merged = {};
        for (int s = first; s - start < a.part_keys && s <= keys.last; s += ops::kPage) {
            if (s % kGroupKeys == 0) merge(all, merged), merged.any = false;
            merge(merged, attend_visible(a, q, slot, kv_head, s, keys, memory + thread_id() / 32 * 32));
        }
        merge(all, merged);
        float* out = part_at(a, part, row, head);
        LUCE_UNROLL
        for (int b = 0; b < kMaxBlocks; b++)
            if (b < a.head_dim / 32) out[32 * b + lane] = all.o[b];
        if (lane == 0) out[a.head_dim] = all.m, out[a.head_dim + 1] = all.l;
    }
}

// Grid x: rows, y: eights of heads.
LUCE_DEVICE void draft_join(const DraftAttentionArgs& d) {
    const AttentionArgs& a = d.kv;
    const int row = block_id(), head = block_id_y() * kPartWaves + thread_id() / 32, lane = lane_id(), D = a.head_dim;
    if (row >= a.batch->rows || head >= a.heads) return;
    const ops::Visible keys = visible_keys(d, row);
    const int base = keys.first / a.part_keys, parts = keys.last / a.part_keys - base + 1;
    Part all = {}, merged = {};
    for (int i = 0; i < parts; i++) {
        if (a.part_keys != ops::kPage || (base + i) * ops::kPage % kGroupKeys == 0) merge(all, merged), merged.any = false;
        const float* from = part_at(a, i, row, head);
        Part next;
        next.any = true, next.m = from[D], next.l = from[D + 1];
        LUCE_UNROLL
        for (int b = 0; b < kMaxBlocks; b++) next.o[b] = dim_of(b) < D ? from[dim_of(b)] : 0.0f;
        merge(merged, next);
    }
    merge(all, merged);
    const size_t at = (static_cast<size_t>(row) * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) * static_cast<size_t>(D);
    LUCE_UNROLL
    for (int part = 0; part < 2; part++) {
        const int dim = part * 128 + 4 * lane;
        const bool live = dim < D;
        float y[4] = {};
        if (part * 128 >= D) break;
        if (live) {
            for (int i = 0; i < 4; i++) y[i] = all.o[part * 4 + i] / all.l;
            store4(a.y.x + at + dim, y);
        }
        quantize_store(a.y, row, (head * D + dim) / 32, y, live);
    }
}

}  // namespace
}  // namespace lucebox::hip
