#include "cpu/backend.h"
#include "cpu/lanes.h"
#include "cpu/portable.h"
#include <cmath>

namespace lucebox::cpu {

using ops::kTile;
using ops::KvForm;

namespace {

constexpr int kMaxDim = 256;

// Unnormalised attention over some keys: maximum, sum of weights, weighted sum of values.
struct Part {
    bool any = false;
    float m = 0, l = 0, o[kMaxDim] = {};
};

float read_scale(const uint8_t* tile, const ops::KvLayout& layout, int key, int dim) {
    uint16_t h;
    memcpy(&h, tile + layout.scales_at() + 2 * ops::KvLayout::scale_index(key, dim), 2);
    return ops::from_f16(h);
}
float read_float(const uint8_t* tile, const ops::KvLayout& layout, size_t index) {
    if (layout.form == KvForm::F16) {
        uint16_t h;
        return memcpy(&h, tile + 2 * index, 2), ops::from_f16(h);
    }
    float x;
    return memcpy(&x, tile + 4 * index, 4), x;
}

float score(const AttendGroup& g, int head, const uint8_t* tile, int key) {
    const int D = g.layout.head_dim;
    float acc = 0;
    if (g.layout.form != KvForm::Q8_0) {
        for (int e = 0; e < D; e++) acc = ops::fma(g.qg[head * g.stride() + e], read_float(tile, g.layout, g.layout.k_index(key, e)), acc);
        return acc * g.factor;
    }
    for (int b = 0; b < D; b += 32) {
        int dot = 0;
        for (int e = b; e < b + 32; e++) dot += g.q[head * D + e] * static_cast<int8_t>(tile[g.layout.k_index(key, e)]);
        acc = ops::fma(g.d[(head * D + b) / 32] * read_scale(tile, g.layout, key, b), static_cast<float>(dot), acc);
    }
    return acc * g.factor;
}

// q8_0: per 32 dimensions w = p * d_v in 15 bits; step = 2^(e - 14) with 2^e <= max w < 2^(e + 1).
void add_values_q8(const ops::KvLayout& layout, const uint8_t* tile, const float* p, int keys, float* o) {
    for (int b = 0; b < layout.head_dim; b += 32) {
        float w[kTile], top = 0;
        bool finite = true;
        for (int i = 0; i < keys; i++) {
            w[i] = p[i] * read_scale(tile, layout, i, b);
            top = ops::max(top, w[i]), finite = finite && ops::is_finite(w[i]);
        }
        if (finite && top < 0x1p-100f) continue;
        const int exponent = finite ? static_cast<int>(ops::to_bits(top) >> 23) - 127 : 0;
        const float step = finite ? ops::power_of_two(exponent - 14) : ops::quiet_nan(), one_by_step = ops::power_of_two(14 - exponent);
        for (int e = b; e < b + 32; e++) {
            int sum = 0;
            for (int i = 0; i < keys && finite; i++) sum += ops::round_int(w[i] * one_by_step) * static_cast<int8_t>(tile[layout.v_index(i, e)]);
            o[e] = ops::fma(step, static_cast<float>(sum), o[e]);
        }
    }
}

void add_values(const ops::KvLayout& layout, const uint8_t* tile, const float* p, int from, int keys, float* o) {
    if (layout.form == KvForm::Q8_0) return add_values_q8(layout, tile, p, keys, o);
    for (int i = from; i < keys; i++)
        for (int e = 0; e < layout.head_dim; e++) o[e] = ops::fma(p[i], read_float(tile, layout, layout.v_index(i, e)), o[e]);
}

// One segment: online softmax, tile by tile. page is the segment's page.
Part attend_segment(const AttendGroup& g, int head, const uint8_t* page, int start) {
    Part s;
    for (int t = start; t < start + ops::kPage && t <= g.last; t += kTile) {
        const int from = std::max(0, g.first - t), keys = std::min(kTile, g.last + 1 - t);
        if (from >= keys) continue;
        const uint8_t* tile = page + g.layout.tile_at(g.kv_head, (t - start) / kTile);
        float p[kTile] = {}, top = 0;
        for (int i = from; i < keys; i++) {
            p[i] = score(g, head, tile, i);
            top = i > from ? ops::max(top, p[i]) : p[i];
        }
        if (!s.any) s.any = true, s.m = top;
        if (top > s.m) {
            const float c = ops::exp(s.m - top);
            s.m = top, s.l = s.l * c;
            for (int e = 0; e < g.layout.head_dim; e++) s.o[e] = s.o[e] * c;
        }
        for (int i = from; i < keys; i++) p[i] = ops::exp(p[i] - s.m);
        s.l = s.l + tree32(p);
        add_values(g.layout, tile + g.layout.tile_bytes(), p, from, keys, s.o);
    }
    return s;
}

// Later keys join earlier ones; the first part is taken as it is.
void merge(Part& a, const Part& b, int dims) {
    if (!b.any) return;
    if (!a.any) {
        a = b;
        return;
    }
    const float m = ops::max(a.m, b.m), ea = ops::exp(a.m - m), eb = ops::exp(b.m - m);
    a.l = ops::fma(b.l, eb, a.l * ea);
    for (int e = 0; e < dims; e++) a.o[e] = ops::fma(b.o[e], eb, a.o[e] * ea);
    a.m = m;
}

}  // namespace

void portable_rotate(float* x, const float* cos, const float* sin, int half) {
    for (int i = 0; i < half; i++) {
        const float x1 = x[i], x2 = x[i + half];
        x[i] = ops::fma(x1, cos[i], -(x2 * sin[i]));
        x[i + half] = ops::fma(x2, cos[i], x1 * sin[i]);
    }
}

// x [head_dim] becomes key `key` of a K or V tile.
void portable_store_kv(const ops::KvLayout& layout, uint8_t* tile, const float* x, int key, bool is_key) {
    for (int b = 0; b < layout.head_dim; b += 32) {
        int8_t q[32];
        const float d = quantize32(x + b, q);
        const uint16_t scale = d < 65520.0f ? ops::to_f16(d) : ops::to_f16(ops::quiet_nan());
        if (layout.form == KvForm::Q8_0) memcpy(tile + layout.scales_at() + 2 * ops::KvLayout::scale_index(key, b), &scale, 2);
        for (int e = b; e < b + 32; e++) {
            const size_t at = is_key ? layout.k_index(key, e) : layout.v_index(key, e);
            const uint16_t half = ops::to_f16(x[e]);
            if (layout.form == KvForm::Q8_0) tile[at] = static_cast<uint8_t>(q[e - b]);
            else if (layout.form == KvForm::F16) memcpy(tile + 2 * at, &half, 2);
            else memcpy(tile + 4 * at, x + e, 4);
        }
    }
}

void portable_attend(const AttendGroup& g) {
    constexpr int kKeysAGroup = 4096;
    const int D = g.layout.head_dim;
    for (int h = 0; h < g.heads; h++) {
        Part all;
        for (int first = g.first / kKeysAGroup * kKeysAGroup; first <= g.last; first += kKeysAGroup) {
            Part group;
            for (int s = std::max(first, g.first / ops::kPage * ops::kPage); s < first + kKeysAGroup && s <= g.last; s += ops::kPage) {
                const uint8_t* page = g.pages + static_cast<size_t>(g.table[s / ops::kPage]) * g.layout.page_bytes();
                merge(group, attend_segment(g, h, page, s), D);
            }
            merge(all, group, D);
        }
        const float* gate = g.qg + static_cast<size_t>(h) * g.stride() + D;
        for (int e = 0; e < D; e++) g.y[h * D + e] = g.gated ? (all.o[e] / all.l) * ops::sigmoid(gate[e]) : all.o[e] / all.l;
    }
}

// Query head `head`, or kv head `head - heads`: norm, RoPE, and quantise or store.
void CpuBackend::prepare_head(const ops::Attention& op, int row, int head) {
    const int D = op.layout.head_dim, half = op.rope_dims / 2, kv = head - op.heads;
    const float *cos = op.batch->rope_cos + static_cast<size_t>(row) * half, *sin = op.batch->rope_sin + static_cast<size_t>(row) * half;
    const size_t kv_at = (static_cast<size_t>(row) * op.layout.kv_heads + static_cast<size_t>(std::max(kv, 0))) * D;
    float* x = kv < 0 ? op.qg + (static_cast<size_t>(row) * op.heads + head) * 2 * D : op.k + kv_at;
    kernels_.norm_row(x, kv < 0 ? op.q_norm : op.k_norm, D, op.eps, x);
    kernels_.rotate(x, cos, sin, half);
    if (kv < 0) {  // y.q, y.d and y.sum hold the quantised query until its head is done
        const size_t at = (static_cast<size_t>(row) * op.heads + head) * D;
        kernels_.quantize_row(x, D, op.y.q + at, op.y.d + at / 32, op.y.sum + at / 16);
        return;
    }
    const int position = op.batch->position[row];
    const int32_t page = op.table[static_cast<size_t>(op.batch->slot[row]) * op.max_pages + position / ops::kPage];
    uint8_t* tile = op.pages + static_cast<size_t>(page) * op.layout.page_bytes() + op.layout.tile_at(kv, position % ops::kPage / kTile);
    kernels_.store_kv(op.layout, tile, x, position % kTile, true);
    kernels_.store_kv(op.layout, tile + op.layout.tile_bytes(), op.v + kv_at, position % kTile, false);
}

void CpuBackend::attend_group(const ops::Attention& op, int row, int kv_head) {
    const int D = op.layout.head_dim, heads = op.heads / op.layout.kv_heads;
    const size_t head = static_cast<size_t>(row) * op.heads + static_cast<size_t>(kv_head) * heads, at = head * D;
    const int n = heads * D;
    kernels_.attend({.layout = op.layout,
                     .pages = op.pages,
                     .table = op.table + static_cast<size_t>(op.batch->slot[row]) * op.max_pages,
                     .first = 0,
                     .last = op.batch->position[row],
                     .kv_head = kv_head,
                     .heads = heads,
                     .gated = true,
                     .qg = op.qg + 2 * at,
                     .q = op.y.q + at,
                     .d = op.y.d + at / 32,
                     .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(D))),
                     .y = op.y.x + at});
    kernels_.quantize_row(op.y.x + at, n, op.y.q + at, op.y.d + at / 32, op.y.sum + at / 16);
}

void CpuBackend::attention(const ops::Attention& op) {
    const int heads = op.heads + op.layout.kv_heads;
    pool_.run(op.batch->rows * heads, [&](int task, int) { prepare_head(op, task / heads, task % heads); });
    pool_.run(op.batch->rows * op.layout.kv_heads, [&](int task, int) { attend_group(op, task / op.layout.kv_heads, task % op.layout.kv_heads); });
}

}  // namespace lucebox::cpu
