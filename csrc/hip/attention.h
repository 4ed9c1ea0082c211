// ops/attention.h in three kernels over the pages of ops/kv.h. attention_prepare: a wave a head of a row: norm, RoPE, then the query as int8 or the
// key and value into their page. attention_part: a workgroup a part of a sequence's keys (256, 4,096 or all), a row and a kv head; a wave a query
// head: in the scores a lane is a key, in the value sums it is a dimension of each 32. attention_join_groups, where there are more than 16 segments,
// and attention_join: a wave a head: parts in order, gate, int8.
#pragma once
#include "hip/quantize.h"
#include "ops/kv.h"

namespace lucebox::hip {
namespace {

using ops::KvForm;
using ops::kTile;
inline constexpr int kMaxHeadDim = 256, kMaxBlocks = kMaxHeadDim / 32, kGroupKeys = 4096, kGroupSegments = kGroupKeys / ops::kPage;
inline constexpr int kPartWaves = 8;

template <KvForm kForm> LUCE_DEVICE int value_bytes() { return kForm == KvForm::Q8_0 ? 1 : kForm == KvForm::F16 ? 2 : 4; }
template <KvForm kForm> LUCE_DEVICE size_t tile_bytes(int head_dim) {
    return static_cast<size_t>(head_dim * kTile * value_bytes<kForm>() + (kForm == KvForm::Q8_0 ? head_dim * 2 : 0));
}
// The K tile of a token of a slot; V's lies tile_bytes behind.
template <KvForm kForm> LUCE_DEVICE uint8_t* tile_of(const AttentionArgs& a, int slot, int kv_head, int position) {
    const size_t page = static_cast<size_t>(a.table[slot * a.max_pages + position / ops::kPage]), tiles = ops::kPage / kTile;
    const size_t tile = (page * static_cast<size_t>(a.kv_heads) + static_cast<size_t>(kv_head)) * tiles + static_cast<size_t>(position % ops::kPage / kTile);
    return a.pages + tile * 2 * tile_bytes<kForm>(a.head_dim);
}

// Four dimensions of a key or value.
template <KvForm kForm> LUCE_DEVICE void store_kv(uint8_t* tile, int head_dim, int key, int dim, const float (&v)[4], const Quantized& t, bool is_key) {
    if constexpr (kForm == KvForm::Q8_0) {
        if (is_key) *reinterpret_cast<uint32_t*>(tile + (dim / 4 * kTile + key) * 4) = t.word;
        else
            for (int i = 0; i < 4; i++) tile[(key / 4 * head_dim + dim + i) * 4 + key % 4] = static_cast<uint8_t>(t.word >> (8 * i));
        const uint16_t scale = t.d < 65520.0f ? ops::to_f16(t.d) : ops::to_f16(ops::quiet_nan());
        if (dim % 32 == 0) reinterpret_cast<uint16_t*>(tile + head_dim * kTile)[dim / 32 * kTile + key] = scale;
    } else {
        for (int i = 0; i < 4; i++) {
            const int at = is_key ? (dim + i) * kTile + key : key * head_dim + dim + i;
            if constexpr (kForm == KvForm::F16) reinterpret_cast<uint16_t*>(tile)[at] = ops::to_f16(v[i]);
            else reinterpret_cast<float*>(tile)[at] = v[i];
        }
    }
}

// Norm and RoPE of a head in place; buffer: [head_dim] of the wave's.
LUCE_DEVICE void norm_and_rotate(float* x, const float* weight, const AttentionArgs& a, int row, float* buffer) {
    const int lane = lane_id(), half = a.rope_dims / 2;
    float acc = 0;
    for (int i = lane; i < a.head_dim; i += 32) acc = ops::fma(x[i], x[i], acc);
    const float r = inverse_sqrt(wave_sum(acc) / static_cast<float>(a.head_dim) + a.eps);
    for (int i = lane; i < a.head_dim; i += 32) buffer[i] = (x[i] * r) * weight[i];
    wave_barrier();
    for (int i = lane; i < half; i += 32) {
        const float c = a.batch->rope_cos[row * half + i], s = a.batch->rope_sin[row * half + i], x1 = buffer[i], x2 = buffer[i + half];
        buffer[i] = ops::fma(x1, c, -(x2 * s)), buffer[i + half] = ops::fma(x2, c, x1 * s);
    }
    wave_barrier();
    for (int i = lane; i < a.head_dim; i += 32) x[i] = buffer[i];
}

// Grid x: rows, y: eights of heads and kv heads.
template <KvForm kForm> LUCE_DEVICE void attention_prepare(const AttentionArgs& a) {
    LUCE_SHARED(Float4, memory, kPartWaves * kMaxHeadDim / 4);
    const int row = block_id(), wave = thread_id() / 32, head = block_id_y() * kPartWaves + wave, D = a.head_dim, kv = head - a.heads;
    if (row >= a.batch->rows || kv >= a.kv_heads) return;
    float* buffer = reinterpret_cast<float*>(memory) + wave * kMaxHeadDim;
    const size_t kv_at = (static_cast<size_t>(row) * static_cast<size_t>(a.kv_heads) + static_cast<size_t>(kv < 0 ? 0 : kv)) * static_cast<size_t>(D);
    const size_t q_at = (static_cast<size_t>(row) * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) * static_cast<size_t>(D);
    norm_and_rotate(kv < 0 ? a.qg + 2 * q_at : a.k + kv_at, kv < 0 ? a.q_norm : a.k_norm, a, row, buffer);
    for (int dim = 4 * lane_id(), part = 0; part < (D + 127) / 128; part++, dim += 128) {
        const bool live = dim < D;
        float v[4] = {}, value[4] = {};
        if (live) load4(v, buffer + dim);
        if (live && kv >= 0) load4(value, a.v + kv_at + dim);
        const Quantized q = quantize4(v), w = quantize4(value);
        if (!live) continue;
        if (kv < 0) {
            *reinterpret_cast<uint32_t*>(a.q + q_at + dim) = q.word;
            if (dim % 32 == 0) a.q_scale[(q_at + static_cast<size_t>(dim)) / 32] = q.d;
        } else {
            const int position = a.batch->position[row];
            uint8_t* tile = tile_of<kForm>(a, a.batch->slot[row], kv, position);
            store_kv<kForm>(tile, D, position % kTile, dim, v, q, true);
            store_kv<kForm>(tile + tile_bytes<kForm>(D), D, position % kTile, dim, value, w, false);
        }
    }
}

// Attention over some keys, not yet divided by l: o of dimensions lane, lane + 32, ...
struct Part {
    bool any;
    float m, l, o[kMaxBlocks];
};
// Later keys join earlier ones; the first part is taken as it is.
LUCE_DEVICE void merge(Part& a, const Part& b) {
    if (!b.any) return;
    if (!a.any) {
        a = b;
        return;
    }
    const float m = ops::max(a.m, b.m), ea = ops::exp(a.m - m), eb = ops::exp(b.m - m);
    a.l = ops::fma(b.l, eb, a.l * ea);
    LUCE_UNROLL
    for (int i = 0; i < kMaxBlocks; i++) a.o[i] = ops::fma(b.o[i], eb, a.o[i] * ea);
    a.m = m;
}

struct Query {
    const float* x;      // [head_dim], after norm and RoPE
    const uint32_t* q;   // [head_dim / 4] words of int8
    const float* d;      // [head_dim / 32]
};

template <KvForm kForm> LUCE_DEVICE float read_value(const uint8_t* tile, int at) {
    if constexpr (kForm == KvForm::F16) return half_to_float(reinterpret_cast<const uint16_t*>(tile)[at]);
    else return reinterpret_cast<const float*>(tile)[at];
}
LUCE_DEVICE float read_scale(const uint8_t* tile, int head_dim, int block, int key) {
    return half_to_float(reinterpret_cast<const uint16_t*>(tile + head_dim * kTile)[block * kTile + key]);
}

// Of key `lane`.
template <KvForm kForm> LUCE_DEVICE float score(const AttentionArgs& a, const Query& q, const uint8_t* tile) {
    const int lane = lane_id();
    float acc = 0;
    if constexpr (kForm == KvForm::Q8_0) {
        const uint32_t* k = reinterpret_cast<const uint32_t*>(tile) + lane;
        for (int b = 0; b < a.head_dim / 32; b++) {
            int dot = 0;
            LUCE_UNROLL
            for (int i = 8 * b; i < 8 * b + 8; i++) dot = dot4(q.q[i], k[i * kTile], dot);
            acc = ops::fma(q.d[b] * read_scale(tile, a.head_dim, b, lane), static_cast<float>(dot), acc);
        }
    } else {
        for (int e = 0; e < a.head_dim; e++) acc = ops::fma(q.x[e], read_value<kForm>(tile, e * kTile + lane), acc);
    }
    return acc * a.factor;
}

// p of key `lane` (+0 if absent); words: 16 of the wave's for the low and high bytes of w_int.
LUCE_DEVICE void add_values_q8(const AttentionArgs& a, const uint8_t* tile, float p, bool present, uint32_t* words, float (&o)[kMaxBlocks]) {
    const int lane = lane_id();
    const uint32_t* v = reinterpret_cast<const uint32_t*>(tile);
    LUCE_ROLLED  // unrolled it takes 169 registers for 69 (gfx1201)
    for (int b = 0; b < a.head_dim / 32; b++) {
        const float w = present ? p * read_scale(tile, a.head_dim, b, lane) : 0.0f;
        // w is not negative; NaN and Inf are above all.
        const uint32_t top = wave_join(ops::to_bits(w) & 0x7fffffffu, [](uint32_t v, int d) { return larger(v, shfl_xor(v, d)); });
        const bool finite = top < 0x7f800000u;
        if (finite && ops::from_bits(top) < 0x1p-100f) continue;
        const int exponent = finite ? static_cast<int>(top >> 23) - 127 : 0;
        const float step = finite ? ops::power_of_two(exponent - 14) : ops::quiet_nan();
        const int w_int = finite ? ops::round_int(w * ops::power_of_two(14 - exponent)) : 0;
        wave_barrier();
        reinterpret_cast<uint8_t*>(words)[lane] = static_cast<uint8_t>(w_int);
        reinterpret_cast<uint8_t*>(words)[32 + lane] = static_cast<uint8_t>(w_int >> 8);
        wave_barrier();
        int low = 0, high = 0;
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) {
            const uint32_t values = v[i * a.head_dim + 32 * b + lane];
            low = dot4_unsigned(words[i], values, low), high = dot4_unsigned(words[8 + i], values, high);
        }
        LUCE_UNROLL
        for (int i = 0; i < kMaxBlocks; i++)
            if (i == b) o[i] = ops::fma(step, static_cast<float>(low + 256 * high), o[i]);
    }
}
template <KvForm kForm> LUCE_DEVICE void add_values(const AttentionArgs& a, const uint8_t* tile, float p, int keys, uint32_t* words, float (&o)[kMaxBlocks]) {
    const int lane = lane_id();
    if constexpr (kForm == KvForm::Q8_0) {
        add_values_q8(a, tile, p, lane < keys, words, o);
        return;
    }
    wave_barrier();
    words[lane] = ops::to_bits(p);
    wave_barrier();
    for (int i = 0; i < keys; i++)
        LUCE_UNROLL
        for (int b = 0; b < kMaxBlocks; b++)
            if (b < a.head_dim / 32) o[b] = ops::fma(ops::from_bits(words[i]), read_value<kForm>(tile, i * a.head_dim + 32 * b + lane), o[b]);
}

// One segment from key `start` on, tile by tile.
template <KvForm kForm>
LUCE_DEVICE Part attend_segment(const AttentionArgs& a, const Query& q, int slot, int kv_head, int start, int position, uint32_t* words) {
    Part s = {};
    const int lane = lane_id();
    for (int t = start; t < start + ops::kPage && t <= position; t += kTile) {
        const int keys = position + 1 - t < kTile ? position + 1 - t : kTile;
        const uint8_t* tile = tile_of<kForm>(a, slot, kv_head, t);
        float p = score<kForm>(a, q, tile), top = lane < keys ? p : ops::from_bits(0xff800000u);
        top = wave_join(top, [](float v, int d) { return ops::max(v, shfl_xor(v, d)); });
        if (!s.any) s.any = true, s.m = top;
        if (top > s.m) {
            const float c = ops::exp(s.m - top);
            s.m = top, s.l = s.l * c;
            LUCE_UNROLL
            for (int i = 0; i < kMaxBlocks; i++) s.o[i] = s.o[i] * c;
        }
        p = lane < keys ? ops::exp(p - s.m) : 0.0f;
        s.l = s.l + wave_sum(p);
        add_values<kForm>(a, tile + tile_bytes<kForm>(a.head_dim), p, keys, words, s.o);
    }
    return s;
}

LUCE_DEVICE float* part_at(const AttentionArgs& a, int part, int row, int head) {
    const size_t at = static_cast<size_t>(part * a.part_step) * static_cast<size_t>(a.rows) + static_cast<size_t>(row);
    return a.parts + (at * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) * static_cast<size_t>(a.head_dim + 2);
}

// Grid x: parts, y: rows, z: kv heads.
template <KvForm kForm> LUCE_DEVICE void attention_part(const AttentionArgs& a) {
    LUCE_SHARED(uint32_t, memory, kPartWaves * 32);
    const int part = block_id(), row = block_id_y(), kv_head = block_id_z(), group = a.heads / a.kv_heads, lane = lane_id();
    if (row >= a.batch->rows) return;
    const int position = a.batch->position[row], slot = a.batch->slot[row], first = part * a.part_keys;
    for (int in = thread_id() / 32; in < group && first <= position; in += kPartWaves) {
        const int head = kv_head * group + in;
        const size_t at = (static_cast<size_t>(row) * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) * static_cast<size_t>(a.head_dim);
        const Query q{a.qg + 2 * at, reinterpret_cast<const uint32_t*>(a.q + at), a.q_scale + at / 32};
        Part all = {}, merged = {};
        for (int s = first; s - first < a.part_keys && s <= position; s += ops::kPage) {
            if (s % kGroupKeys == 0) merge(all, merged), merged.any = false;
            merge(merged, attend_segment<kForm>(a, q, slot, kv_head, s, position, memory + thread_id() / 32 * 32));
        }
        merge(all, merged);
        float* out = part_at(a, part, row, head);
        LUCE_UNROLL
        for (int b = 0; b < kMaxBlocks; b++)
            if (b < a.head_dim / 32) out[32 * b + lane] = all.o[b];
        if (lane == 0) out[a.head_dim] = all.m, out[a.head_dim + 1] = all.l;
    }
}

// Here a lane has four dimensions of each 128.
LUCE_DEVICE int dim_of(int i) { return i / 4 * 128 + 4 * lane_id() + i % 4; }

// Parts first .. first + n - 1 in order; four are on their way while one is merged.
LUCE_DEVICE Part join_parts(const AttentionArgs& a, int row, int head, int first, int n) {
    constexpr int kAhead = 4;
    Part merged = {}, next[kAhead];
    const int D = a.head_dim;
    for (int i = 0; i < n; i += kAhead) {
        LUCE_UNROLL
        for (int j = 0; j < kAhead; j++) {
            const float* from = part_at(a, first + (i + j < n ? i + j : n - 1), row, head);
            next[j].any = i + j < n, next[j].m = from[D], next[j].l = from[D + 1];
            LUCE_UNROLL
            for (int b = 0; b < kMaxBlocks; b++) next[j].o[b] = dim_of(b) < D ? from[dim_of(b)] : 0.0f;
        }
        LUCE_UNROLL
        for (int j = 0; j < kAhead; j++) merge(merged, next[j]);
    }
    return merged;
}

// Parts of a segment into the first of their group. Grid x: rows, y: eights of heads, z: groups.
LUCE_DEVICE void attention_join_groups(const AttentionArgs& a) {
    const int row = block_id(), head = block_id_y() * kPartWaves + thread_id() / 32, lane = lane_id(), first = block_id_z() * kGroupSegments;
    if (row >= a.batch->rows || head >= a.heads) return;
    const int parts = a.batch->position[row] / ops::kPage + 1;
    if (first >= parts) return;
    const Part merged = join_parts(a, row, head, first, parts - first < kGroupSegments ? parts - first : kGroupSegments);
    float* out = part_at(a, first, row, head);
    wave_barrier();  // all lanes have read m and l
    LUCE_UNROLL
    for (int b = 0; b < kMaxBlocks; b++)
        if (dim_of(b) < a.head_dim) out[dim_of(b)] = merged.o[b];
    if (lane == 0) out[a.head_dim] = merged.m, out[a.head_dim + 1] = merged.l;
}

// Parts of one group, or groups. Grid x: rows, y: eights of heads.
LUCE_DEVICE void attention_join(const AttentionArgs& a) {
    const int row = block_id(), head = block_id_y() * kPartWaves + thread_id() / 32, lane = lane_id(), D = a.head_dim;
    if (row >= a.batch->rows || head >= a.heads) return;
    const Part all = join_parts(a, row, head, 0, a.batch->position[row] / a.part_keys + 1);
    const size_t at = (static_cast<size_t>(row) * static_cast<size_t>(a.heads) + static_cast<size_t>(head)) * static_cast<size_t>(D);
    LUCE_UNROLL
    for (int part = 0; part < 2; part++) {
        const int dim = part * 128 + 4 * lane;
        const bool live = dim < D;
        float y[4] = {}, gate[4] = {};
        if (part * 128 >= D) break;
        if (live) {
            load4(gate, a.qg + 2 * at + D + dim);
            for (int i = 0; i < 4; i++) y[i] = (all.o[part * 4 + i] / all.l) * ops::sigmoid(gate[i]);
            store4(a.y.x + at + dim, y);
        }
        quantize_store(a.y, row, (head * D + dim) / 32, y, live);
    }
}

}  // namespace
}  // namespace lucebox::hip
