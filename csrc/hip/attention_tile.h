// The parts of ops/attention.h for q8_0 pages by tile products, heads of 128 or 256. A workgroup takes 16 queries (rows of a span x heads of a kv
// head) and a part of the keys, a segment at a time: each of eight waves scores one tile of 32 keys (queries are the product's outputs, keys its
// rows); then, tile by tile in order, a wave has 32 dimensions (weights are the outputs, in low and high bytes; dimensions the rows).
// Softmax weights go from one product into the other in their lane. Grid x: parts x tiles of queries, y: spans, z: kv heads.
// Where kAsyncCopies, keys and values come through a ring of each wave's (attention_stream.h); elsewhere they are loaded where they are used.
#pragma once
#include "hip/attention_stream.h"

namespace lucebox::hip {
namespace {

inline constexpr int kAttentionWaves = 8, kQueries = 16, kLaneKeys = 8 / kLaneRows;  // a lane's keys of 16
static_assert(kAttentionWaves == kTilesASegment, "a wave scores one tile of a segment");

// Of the 16 queries: what each sees, and where it lies.
struct QueryTile {
    ops::Span span;
    int first, group, kv_head;  // first query
    LUCE_DEVICE_MEMBER bool valid(int q) const { return first + q < span.rows * group; }
    LUCE_DEVICE_MEMBER int row(int q) const { return span.first + (first + q) / group; }
    LUCE_DEVICE_MEMBER int head(int q) const { return kv_head * group + (first + q) % group; }
    LUCE_DEVICE_MEMBER int position(int q) const {
        const int r = (first + q) / group;
        return span.position + (r < span.rows ? r : span.rows - 1);
    }
};

// Workgroup memory.
template <int kBlocks> struct TileMemory {
    static constexpr int kStride = kBlocks * 8 + (Map::kFragChunks == 1 ? 4 : 1);  // words of a query: no bank conflicts
    uint32_t* q;                                                            // [16][kStride]
    float* scale;                                                           // [16][kBlocks]
    float *top, *rescale, *sum;                                             // [8 tiles][16]: maximum, exp(m_old - m_new), sum of p
    Float4* p;                                                              // [8 tiles][4][32 lanes]
};

struct LaneScales {  // of the lane's keys of 16
    uint32_t v[kLaneKeys / 2];
    LUCE_DEVICE_MEMBER void load(const uint8_t* scales, int half, int lane) {
        const uint8_t* p = scales + (half * 16 + 4 * Map::frag_chunk(lane)) * 2;
        if constexpr (kLaneKeys == 8) {
            const Word4 t = *reinterpret_cast<const Word4*>(p);
            v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
        } else {
            const Word2 t = *reinterpret_cast<const Word2*>(p);
            v[0] = t.x, v[1] = t.y;
        }
    }
    LUCE_DEVICE_MEMBER float operator[](int e) const { return half_to_float((v[e / 2] >> (16 * (e & 1))) & 0xffffu); }
};

// Over the lanes that hold keys of the same query.
LUCE_DEVICE float lanes_max(float v) {
    if constexpr (kLaneRows == 2) return v = ops::max(v, shfl_xor(v, 1)), ops::max(v, shfl_xor(v, 2));
    else return ops::max(v, shfl_xor(v, 16));
}
LUCE_DEVICE uint32_t lanes_max_bits(uint32_t v) {
    if constexpr (kLaneRows == 2) return v = larger(v, shfl_xor(v, 1)), larger(v, shfl_xor(v, 2));
    else return larger(v, shfl_xor(v, 16));
}
// The exchange tree 16, 8, 4, 2, 1 over the tile's keys.
LUCE_DEVICE float tile_sum(const float (&p)[2][kLaneKeys]) {
    float v[kLaneKeys];
    LUCE_UNROLL
    for (int e = 0; e < kLaneKeys; e++) {
        v[e] = p[0][e] + p[1][e];
        if constexpr (kLaneRows == 2) v[e] = v[e] + shfl_xor(v[e], 2), v[e] = v[e] + shfl_xor(v[e], 1);
        else v[e] = v[e] + shfl_xor(v[e], 16);
    }
    LUCE_UNROLL
    for (int m = kLaneKeys / 2; m; m /= 2)
        LUCE_UNROLL
        for (int e = 0; e < m; e++) v[e] = v[e] + v[e + m];
    return v[0];
}

using Scores = float[kLaneRows][2][kLaneKeys];

template <int kBlocks> LUCE_DEVICE void score_tile(const TileMemory<kBlocks>& m, const KvStream<kBlocks>& kv, float factor, Scores& s) {
    const int lane = lane_id();
    int query_at[2], key_at[2][2];
    for (int r = 0; r < kLaneRows; r++) {
        query_at[r] = Map::frag_row(lane, r) * TileMemory<kBlocks>::kStride;
        for (int h = 0; h < 2; h++) key_at[h][r] = 16 * h + Map::key_of_row(Map::frag_row(lane, r));
        for (int e = 0; e < kLaneKeys; e++) s[r][0][e] = s[r][1][e] = 0;
    }
    LUCE_UNROLL
    for (int b = 0; b < kBlocks; b++) {
        if (b % 2 == 0) schedule_fence();
        uint32_t q[4];
        load_fragment<false>(q, m.q + 8 * b, query_at, 1, lane);
        const KvBlock k = kv.keys_block(b);
        float d[kLaneRows];
        for (int r = 0; r < kLaneRows; r++) d[r] = m.scale[Map::frag_row(lane, r) * kBlocks + b];
        LUCE_UNROLL
        for (int h = 0; h < 2; h++) {
            uint32_t x[4];
            int dot[8];
            LaneScales dk;
            load_fragment<kAsyncCopies>(x, k.words, key_at[h], k.step, lane);
            dk.load(k.scales, h, lane);
            tile32<16, true, kSumBits>(dot, q, x);
            LUCE_UNROLL
            for (int i = 0; i < 8; i++) {
                float& acc = s[Map::acc_row(i)][h][Map::key_of_sum(i)];
                acc = ops::fma(d[Map::acc_row(i)] * dk[Map::key_of_sum(i)], ops::from_bits(static_cast<uint32_t>(dot[i])) - kSumStart, acc);
            }
        }
        kv.after_keys(b);
    }
    LUCE_UNROLL
    for (int r = 0; r < kLaneRows; r++)
        LUCE_UNROLL
        for (int e = 0; e < kLaneKeys; e++) s[r][0][e] = s[r][0][e] * factor, s[r][1][e] = s[r][1][e] * factor;
}

// Value sums of a lane: 16 dimensions twice, its queries' maxima and sums.
struct TilePart {
    float o[2][8], m[kLaneRows], l[kLaneRows];
};
LUCE_DEVICE void clear(TilePart& t) {
    for (int i = 0; i < 8; i++) t.o[0][i] = t.o[1][i] = 0;
    for (int r = 0; r < kLaneRows; r++) t.m[r] = ops::from_bits(0xff800000u), t.l[r] = 0;
}
// Later keys join earlier ones where the query sees them; the first part is taken as it is.
LUCE_DEVICE void merge(TilePart& a, bool (&any)[kLaneRows], const TilePart& b, const bool (&sees)[kLaneRows]) {
    LUCE_UNROLL
    for (int r = 0; r < kLaneRows; r++) {
        const float m = ops::max(a.m[r], b.m[r]), ea = ops::exp(a.m[r] - m), eb = ops::exp(b.m[r] - m);
        LUCE_UNROLL
        for (int i = 0; i < 16; i++) {
            if (Map::acc_row(i % 8) != r) continue;
            float& o = a.o[i / 8][i % 8];
            const float own = b.o[i / 8][i % 8], joined = ops::fma(own, eb, o * ea);
            o = !sees[r] ? o : any[r] ? joined : own;
        }
        const float l = ops::fma(b.l[r], eb, a.l[r] * ea);
        a.l[r] = !sees[r] ? a.l[r] : any[r] ? l : b.l[r];
        a.m[r] = !sees[r] ? a.m[r] : any[r] ? m : b.m[r];
        any[r] = any[r] || sees[r];
    }
}

// Weights of a lane's keys with a block of 32 dimensions, as low and high bytes; returns the step of each query. last: the last key of the tile
// that a query sees; whole: all see all.
LUCE_DEVICE void weigh(const Scores& p, const LaneScales (&dv)[2], const int (&last)[kLaneRows], bool whole, uint32_t (&low)[4], uint32_t (&high)[4],
                       float (&step)[kLaneRows]) {
    const int first = 4 * Map::frag_chunk(lane_id());
    float w[kLaneRows][2][kLaneKeys];
    if (whole) {
        LUCE_UNROLL
        for (int i = 0; i < kLaneRows * 2 * kLaneKeys; i++) {
            const int r = i / (2 * kLaneKeys), h = i / kLaneKeys % 2, e = i % kLaneKeys;
            w[r][h][e] = p[r][h][e] * dv[h][e];
        }
    } else {  // an absent key's scale may be NaN
        LUCE_UNROLL
        for (int i = 0; i < kLaneRows * 2 * kLaneKeys; i++) {
            const int r = i / (2 * kLaneKeys), h = i / kLaneKeys % 2, e = i % kLaneKeys;
            w[r][h][e] = 16 * h + first + e <= last[r] ? p[r][h][e] * dv[h][e] : 0.0f;
        }
    }
    LUCE_UNROLL
    for (int r = 0; r < kLaneRows; r++) {
        uint32_t top = 0;
        LUCE_UNROLL
        for (int i = 0; i < 2 * kLaneKeys; i++) top = larger(top, ops::to_bits(w[r][i / kLaneKeys][i % kLaneKeys]));  // not negative; NaN, Inf are above all
        top = lanes_max_bits(top);
        const bool finite = top < 0x7f800000u, none = finite && ops::from_bits(top) < 0x1p-100f;
        // Where nothing is to be added the step is -0: fma(-0, 0, o) is o, whatever o is.
        step[r] = !finite ? ops::quiet_nan() : none ? -0.0f : ops::from_bits((top & 0x7f800000u) - (14u << 23));
        const float inverse = none || !finite ? 0.0f : ops::from_bits((268u << 23) - (top & 0x7f800000u));
        LUCE_UNROLL
        for (int i = 0; i < 2 * kLaneKeys; i += 4) {
            const int h = i / kLaneKeys, e = i % kLaneKeys;
            uint32_t n[4];  // w / step rounded to an integer of 16 bits, above which are those of 1.5 * 2^23; of no account beside a step of NaN
            LUCE_UNROLL
            for (int j = 0; j < 4; j++) n[j] = ops::to_bits(ops::fma(w[r][h][e + j], inverse, 12582912.0f));
            const uint32_t a = perm(n[1], n[0], 0x05010400u), b = perm(n[3], n[2], 0x05010400u);
            low[2 * h + r + e / 4] = perm(b, a, 0x05040100u), high[2 * h + r + e / 4] = perm(b, a, 0x07060302u);
        }
    }
}

// One tile's values into the wave's 32 dimensions.
template <int kBlocks>
LUCE_DEVICE void add_tile(const TileMemory<kBlocks>& m, const KvStream<kBlocks>& kv, int t, const int (&last)[kLaneRows], bool whole,
                          TilePart& part) {
    const int lane = lane_id();
    const KvBlock v = kv.values_block(t);
    Scores p;
    LaneScales dv[2];
    uint32_t low[4], high[4], x[4];
    float step[kLaneRows], c[kLaneRows];
    for (int h = 0; h < 2; h++) dv[h].load(v.scales, h, lane);
    LUCE_UNROLL
    for (int i = 0; i < 4; i++) {
        const Float4 f = m.p[(t * 4 + i) * 32 + lane];
        float* to = &p[0][0][0] + 4 * i;
        to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
    }
    for (int r = 0; r < kLaneRows; r++) c[r] = m.rescale[t * kQueries + Map::frag_row(lane, r)];
    weigh(p, dv, last, whole, low, high, step);
    int dim[2];
    LUCE_UNROLL
    for (int g = 0; g < 2; g++) {
        int d_low[8], d_high[8];
        for (int r = 0; r < kLaneRows; r++) dim[r] = 16 * g + Map::frag_row(lane, r);
        load_fragment<kAsyncCopies>(x, v.words, dim, v.step, lane);
        tile32<16, false>(d_high, high, x);
        tile32<16, false>(d_low, low, x);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) {  // times 1 where the maximum did not rise
            const float o = part.o[g][i] * c[Map::acc_row(i)];
            part.o[g][i] = ops::fma(step[Map::acc_row(i)], static_cast<float>(d_low[i] + 256 * d_high[i]), o);
        }
    }
}

// Scores of the wave's tile become p, its sum and its factor in workgroup memory; m: the running maxima before and after the segment.
template <int kBlocks>
LUCE_DEVICE void soften(const TileMemory<kBlocks>& mem, Scores& s, int wave, int tiles, const int (&last)[kLaneRows], TilePart& part) {
    const int lane = lane_id(), first = 4 * Map::frag_chunk(lane);
    LUCE_UNROLL
    for (int r = 0; r < kLaneRows; r++) {
        const int q = Map::frag_row(lane, r);
        float before = part.m[r], after = part.m[r];
        for (int t = 0; t < tiles; t++) {
            const float m = ops::max(part.m[r], mem.top[t * kQueries + q]);
            part.m[r] = m;
            if (t < wave) before = m;
            if (t <= wave) after = m;
        }
        LUCE_UNROLL
        for (int i = 0; i < 2 * kLaneKeys; i++) {
            const int h = i / kLaneKeys, e = i % kLaneKeys;
            s[r][h][e] = 16 * h + first + e <= last[r] ? ops::exp(s[r][h][e] - after) : 0.0f;
        }
        const float sum = tile_sum(s[r]);
        const float rescale = after > before ? ops::exp(before - after) : 1.0f;
        if (Map::frag_chunk(lane) == 0) mem.sum[wave * kQueries + q] = sum, mem.rescale[wave * kQueries + q] = rescale;
    }
    LUCE_UNROLL
    for (int i = 0; i < 4; i++) {
        const float* from = &s[0][0][0] + 4 * i;
        mem.p[(wave * 4 + i) * 32 + lane] = Float4{from[0], from[1], from[2], from[3]};
    }
}

// One segment of all 16 queries. last: the last key of the segment that a lane's query sees (negative: none); least: that every query sees.
template <int kBlocks>
LUCE_DEVICE void tile_segment(const AttentionArgs& a, const TileMemory<kBlocks>& mem, const KvStream<kBlocks>& kv, const int (&last)[kLaneRows],
                              int least, TilePart& part) {
    const int wave = uniform(thread_id() / 32), lane = lane_id(), first = 4 * Map::frag_chunk(lane), tiles = kv.now.tiles;
    Scores s;
    int in_tile[kLaneRows];
    for (int r = 0; r < kLaneRows; r++) in_tile[r] = last[r] - kTile * wave;
    if (wave < tiles) {
        score_tile<kBlocks>(mem, kv, a.factor, s);
        LUCE_UNROLL
        for (int r = 0; r < kLaneRows; r++) {
            float top = ops::from_bits(0xff800000u);
            LUCE_UNROLL
            for (int i = 0; i < 2 * kLaneKeys; i++) {
                const int h = i / kLaneKeys, e = i % kLaneKeys;
                if (16 * h + first + e <= in_tile[r]) top = ops::max(top, s[r][h][e]);
            }
            top = lanes_max(top);
            if (Map::frag_chunk(lane) == 0) mem.top[wave * kQueries + Map::frag_row(lane, r)] = top;
        }
    } else {
        for (int b = 0; b < kBlocks; b++) kv.after_keys(b);
    }
    barrier();
    if (wave < tiles) soften<kBlocks>(mem, s, wave, tiles, in_tile, part);
    else
        for (int r = 0; r < kLaneRows; r++)
            for (int t = 0; t < tiles; t++) part.m[r] = ops::max(part.m[r], mem.top[t * kQueries + Map::frag_row(lane, r)]);
    barrier();
    for (int t = 0; t < tiles; t++) {
        if (wave < kBlocks) {
            for (int r = 0; r < kLaneRows; r++) {
                const int at = t * kQueries + Map::frag_row(lane, r);
                in_tile[r] = last[r] - kTile * t;
                part.l[r] = part.l[r] * mem.rescale[at] + mem.sum[at];
            }
            add_tile<kBlocks>(mem, kv, t, in_tile, least >= kTile * t + kTile - 1, part);
        }
        kv.after_values(t);
    }
}

template <int kBlocks> LUCE_DEVICE void stage_queries(const AttentionArgs& a, const TileMemory<kBlocks>& mem, const QueryTile& tile) {
    for (int i = thread_id(); i < kQueries * kBlocks * 8; i += kAttentionWaves * 32) {
        const int q = i / (kBlocks * 8), word = i % (kBlocks * 8);
        const size_t head = static_cast<size_t>(tile.row(q)) * static_cast<size_t>(a.heads) + static_cast<size_t>(tile.head(q));
        const bool valid = tile.valid(q);
        mem.q[q * TileMemory<kBlocks>::kStride + word] = valid ? reinterpret_cast<const uint32_t*>(a.q)[head * kBlocks * 8 + static_cast<size_t>(word)] : 0;
        if (word < kBlocks) mem.scale[q * kBlocks + word] = valid ? a.q_scale[head * kBlocks + static_cast<size_t>(word)] : 0.0f;
    }
    barrier();
}

template <int kBlocks> LUCE_DEVICE void store_part(const AttentionArgs& a, const QueryTile& tile, int part, const TilePart& sums) {
    const int wave = thread_id() / 32, lane = lane_id();
    if (wave >= kBlocks) return;
    LUCE_UNROLL
    for (int r = 0; r < kLaneRows; r++) {
        const int q = Map::frag_row(lane, r);
        if (!tile.valid(q)) continue;
        float* out = part_at(a, part, tile.row(q), tile.head(q));
        LUCE_UNROLL
        for (int i = 0; i < 16; i++)
            if (Map::acc_row(i % 8) == r) out[32 * wave + i / 8 * 16 + Map::acc_r(lane, i % 8)] = sums.o[i / 8][i % 8];
        if (wave == 0 && Map::frag_chunk(lane) == 0) out[kBlocks * 32] = sums.m[r], out[kBlocks * 32 + 1] = sums.l[r];
    }
}

// kMany: parts of more than one segment.
template <int kBlocks, bool kMany> LUCE_DEVICE void attention_tile(const AttentionArgs& a) {
    LUCE_SHARED(uint32_t, q, kQueries * TileMemory<kBlocks>::kStride);
    LUCE_SHARED(float, floats, kQueries * kBlocks + 3 * kTilesASegment * kQueries);
    LUCE_SHARED(Float4, p, kTilesASegment * 4 * 32);
    LUCE_DYNAMIC_SHARED(stream);  // kStreamBytes a wave
    if (block_id_y() >= a.batch->spans) return;
    const int group = a.heads / a.kv_heads, part = block_id() / a.query_tiles, lane = lane_id();
    const QueryTile tile{a.batch->span[block_id_y()], block_id() % a.query_tiles * kQueries, group, block_id_z()};
    const int most = tile.position(kQueries - 1);
    if (tile.first >= tile.span.rows * group || part > most / a.part_keys) return;
    float* top = floats + kQueries * kBlocks;
    const TileMemory<kBlocks> mem{q, floats, top, top + kTilesASegment * kQueries, top + 2 * kTilesASegment * kQueries, p};
    KvStream<kBlocks> kv(stream, part * a.part_keys, part_end(a, part, most), most, a, tile.span.slot, tile.kv_head);
    kv.start();
    stage_queries<kBlocks>(a, mem, tile);
    TilePart all, merged, sums;
    bool any_all[kLaneRows] = {}, any_merged[kLaneRows] = {}, sees[kLaneRows];
    clear(all), clear(merged), clear(sums);
    for (; !kv.done(); kv.advance()) {
        int last[kLaneRows];
        for (int r = 0; r < kLaneRows; r++) last[r] = tile.position(Map::frag_row(lane, r)) - kv.now.first, sees[r] = last[r] >= 0;
        if (kMany && kv.now.first % kGroupKeys == 0) {
            merge(all, any_all, merged, any_merged);
            for (int r = 0; r < kLaneRows; r++) any_merged[r] = false;
        }
        clear(sums);
        tile_segment<kBlocks>(a, mem, kv, last, tile.position(0) - kv.now.first, sums);
        if (kMany) merge(merged, any_merged, sums, sees);
        barrier();
    }
    if (kMany) merge(all, any_all, merged, any_merged);
    store_part<kBlocks>(a, tile, part, kMany ? all : sums);
}

}  // namespace
}  // namespace lucebox::hip
