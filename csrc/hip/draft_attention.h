// ops/draft_attention.h: a workgroup 16 queries of a kv head and a part of the keys, then a wave a query head joins the parts in order. Parts are
// pages, groups, or all a row sees; the first part of a row holds its first key.
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

inline constexpr int kDraftThreads = 32 * kDraftWaves, kSegmentTiles = ops::kPage / kTile;
inline constexpr int kScoreStride = ops::kPage + 4;  // words of a query: no bank conflicts

// One of a workgroup's queries, rows of a span x heads of a kv head. Those behind the last see what it sees, and are not stored.
struct alignas(16) DraftQuery {
    int first, last;  // keys that it sees
    int at;           // row * heads + head; -1: none
    int part;         // of its own, where the workgroup's is `part`
};

// What is known of a query's keys so far, and how the sums of later ones join those of earlier ones; the first are taken as they are.
struct DraftTotal {
    float m, l;
    int any;
};
struct alignas(16) Joint {
    float a, b;
    int any, more;
    LUCE_DEVICE_MEMBER float operator()(float of_a, float of_b) const { return !more ? of_a : any ? ops::fma(of_b, b, of_a * a) : of_b; }
};
LUCE_DEVICE DraftTotal nothing() { return {ops::from_bits(0xff800000u), 0, 0}; }
LUCE_DEVICE Joint join(DraftTotal& a, const DraftTotal& b) {
    const float m = ops::max(a.m, b.m);
    const Joint joint{ops::exp(a.m - m), ops::exp(b.m - m), a.any, b.any};
    a = {!b.any ? a.m : a.any ? m : b.m, joint(a.l, b.l), a.any | b.any};
    return joint;
}

// Workgroup memory. Queries make room for their scores, and these for the weights. (What a loop needs again is read from here: clang would keep all of it
// in registers.)
struct DraftMemory {
    Float4 scores[kDraftQueries * kScoreStride / 4];  // [16][kScoreStride], or queries [head_dim][16]
    DraftQuery query[kDraftQueries];
    Joint joint[kDraftQueries];                       // of the segment to those before it
    DraftTotal group[kDraftQueries], before[kDraftQueries];
    float rescale[kSegmentTiles * kDraftQueries];     // [8 tiles][16]: exp(m_old - m_new), 1 where the maximum did not rise
    float sum[kSegmentTiles * kDraftQueries];         // of a tile's weights
    LUCE_DEVICE_MEMBER float* row(int q) { return reinterpret_cast<float*>(scores) + q * kScoreStride; }
};

// A page of a kv head's keys, of which the workgroup needs tiles first .. last.
struct DraftSegment {
    const uint8_t* tiles;
    size_t stride;  // from a tile's keys to the next one's; their values lie between
    int start, first, last;
};

LUCE_DEVICE DraftQuery draft_query(const DraftAttentionArgs& d, const ops::Span& span, int n, int part) {
    const int group = d.kv.heads / d.kv.kv_heads, row = span.first + (n / group < span.rows ? n / group : span.rows - 1);
    const ops::Visible keys = ops::visible(span, row, d.window, d.causal != 0);
    return {keys.first, keys.last, n < span.rows * group ? row * d.kv.heads + block_id_z() * group + n % group : -1, part - keys.first / d.kv.part_keys};
}

// at: of query thread_id() % 16.
LUCE_DEVICE void stage_queries(const AttentionArgs& a, DraftMemory& mem, int at) {
    const int q = thread_id() % kDraftQueries;
    const float* from = a.qg + static_cast<size_t>(at < 0 ? 0 : at) * static_cast<size_t>(a.head_dim);
    float* to = reinterpret_cast<float*>(mem.scores) + q;
    for (int dim = thread_id() / kDraftQueries * 4; dim < a.head_dim; dim += kDraftThreads / kDraftQueries * 4) {
        float v[4] = {};
        if (at >= 0) load4(v, from + dim);
        for (int i = 0; i < 4; i++) to[(dim + i) * kDraftQueries] = v[i];
    }
}

LUCE_DEVICE void four_halves(float (&v)[4], const Word2& t) {
    v[0] = half_to_float(t.x & 0xffffu), v[1] = half_to_float(t.x >> 16), v[2] = half_to_float(t.y & 0xffffu), v[3] = half_to_float(t.y >> 16);
}

// A wave has two tiles of keys, a lane eight queries and four keys; the keys' next eight dimensions are on their way.
LUCE_DEVICE const uint8_t* own_keys(const DraftSegment& seg) {
    return seg.tiles + static_cast<size_t>(thread_id() / 32 * 2 + lane_id() / 8 % 2) * seg.stride + lane_id() % 8 * 8;
}
LUCE_DEVICE void load_keys(Word2 (&v)[8], const uint8_t* keys, int dim) {
    LUCE_UNROLL
    for (int i = 0; i < 8; i++) v[i] = *reinterpret_cast<const Word2*>(keys + (dim + i) * kTile * 2);
}
LUCE_DEVICE void score_keys(DraftMemory& mem, const uint8_t* keys, int head_dim, Word2 (&next)[8], float (&s)[8][4]) {
    const Float4* q = mem.scores + lane_id() / 16 * 2;
    LUCE_UNROLL
    for (int i = 0; i < 32; i++) s[i / 4][i % 4] = 0;
    LUCE_ROLLED
    for (int e = 0; e < head_dim; e += 8) {
        Word2 now[8];
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) now[i] = next[i];
        load_keys(next, keys, e + 8 < head_dim ? e + 8 : e);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) {
            const Float4 low = q[(e + i) * 4], high = q[(e + i) * 4 + 1];
            const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            float key[4];
            four_halves(key, now[i]);
            LUCE_UNROLL
            for (int n = 0; n < 32; n++) s[n / 4][n % 4] = ops::fma(x[n / 4], key[n % 4], s[n / 4][n % 4]);
        }
    }
}
LUCE_DEVICE void store_scores(DraftMemory& mem, float factor, const float (&s)[8][4]) {
    const int lane = lane_id(), key = thread_id() / 32 * 64 + lane % 16 * 4;
    LUCE_UNROLL
    for (int j = 0; j < 8; j++) {
        const float v[4] = {s[j][0] * factor, s[j][1] * factor, s[j][2] * factor, s[j][3] * factor};
        store4(mem.row(lane / 16 * 8 + j) + key, v);
    }
}

// Scores become weights, +0 for keys that the query does not see. A lane is a key of each tile, and in the end of one query a tile. A tile without any
// of the query's changes nothing: its maximum is -Inf, from which the first maximum only rescales zeros. (exp of a chosen argument: of a chosen exp
// the compiler makes branches. exp(0) is 1, and exp(-200) is +0.)
template <bool kMany> LUCE_DEVICE void soften(DraftMemory& mem, const DraftSegment& seg) {
    static_assert(kDraftQueries / kDraftWaves * kSegmentTiles == 32, "a lane has one query's tile");
    const int lane = lane_id(), wave = thread_id() / 32;
    LUCE_ROLLED
    for (int j = 0; j < kDraftQueries / kDraftWaves; j++) {
        const int q = wave + kDraftWaves * j;
        const DraftQuery query = mem.query[q];
        float* row = mem.row(q) + lane;
        float p[kSegmentTiles], top[kSegmentTiles], m = ops::from_bits(0xff800000u);
        bool seen[kSegmentTiles];
        LUCE_UNROLL
        for (int t = 0; t < kSegmentTiles; t++) {
            const int key = seg.start + t * kTile + lane;
            seen[t] = key >= query.first && key <= query.last;
            p[t] = row[t * kTile];
            top[t] = wave_join(seen[t] ? p[t] : m, [](float v, int d) { return ops::max(v, shfl_xor(v, d)); });
        }
        LUCE_UNROLL
        for (int t = 0; t < kSegmentTiles; t++) {
            const bool rises = top[t] > m;
            top[t] = rises ? top[t] : m;
            if (lane == 0) mem.rescale[t * kDraftQueries + q] = rises ? m - top[t] : 0.0f;
            m = top[t];
            p[t] = ops::exp(seen[t] ? p[t] - m : -200.0f);
            row[t * kTile] = p[t];
        }
        LUCE_UNROLL
        for (int t = 0; t < kSegmentTiles; t++) {
            const float sum = wave_sum(p[t]);
            if (lane == 0) mem.sum[t * kDraftQueries + q] = sum;
        }
        if (lane == 0) mem.joint[q].a = m;
    }
    wave_barrier();
    const int at = lane % kSegmentTiles * kDraftQueries + wave + kDraftWaves * (lane / kSegmentTiles);
    mem.rescale[at] = ops::exp(mem.rescale[at]);
    wave_barrier();
    if (lane >= kDraftQueries / kDraftWaves) return;
    const int q = wave + kDraftWaves * lane;
    const DraftQuery query = mem.query[q];
    float l = 0;
    LUCE_UNROLL
    for (int t = 0; t < kSegmentTiles; t++) l = l * mem.rescale[t * kDraftQueries + q] + mem.sum[t * kDraftQueries + q];
    DraftTotal group = kMany ? mem.group[q] : nothing();
    mem.joint[q] = join(group, {mem.joint[q].a, l, query.first < seg.start + ops::kPage && query.last >= seg.start});
    mem.group[q] = group;
}

// A lane has four dimensions of each of its wave's blocks of 32, for these queries.
LUCE_DEVICE int query_of(int r) { return lane_id() / 8 + 4 * r; }

// Eight keys from key `at` of the segment on; kEdge: not all queries see all of them.
template <bool kEdge> LUCE_DEVICE void add_keys(DraftMemory& mem, int at, int start, const Word2 (&values)[8], float (&o)[4][4]) {
    int first[4] = {}, last[4] = {};
    if (kEdge)
        LUCE_UNROLL
        for (int r = 0; r < 4; r++) first[r] = mem.query[query_of(r)].first - start, last[r] = mem.query[query_of(r)].last - start;
    LUCE_UNROLL
    for (int h = 0; h < 2; h++) {
        float p[4][4];
        LUCE_UNROLL
        for (int r = 0; r < 4; r++) load4(p[r], mem.row(query_of(r)) + at + 4 * h);
        LUCE_UNROLL
        for (int j = 0; j < 4; j++) {
            const int key = at + 4 * h + j;
            float v[4];
            four_halves(v, values[4 * h + j]);
            LUCE_UNROLL
            for (int n = 0; n < 16; n++) {
                const int r = n / 4, i = n % 4;
                const float sum = ops::fma(p[r][j], v[i], o[r][i]);
                o[r][i] = !kEdge || (key >= first[r] && key <= last[r]) ? sum : o[r][i];
            }
        }
    }
}

// The segment's values of 32 dimensions from `dim` on.
LUCE_DEVICE void add_values(DraftMemory& mem, const DraftSegment& seg, int head_dim, int dim, float (&o)[4][4]) {
    const uint8_t* values = seg.tiles + seg.stride / 2 + (dim + lane_id() % 8 * 4) * 2;
    const auto load = [&](Word2 (&v)[8], int at) {
        const uint8_t* from = values + static_cast<size_t>(at / kTile) * seg.stride + at % kTile * head_dim * 2;
        LUCE_UNROLL
        for (int i = 0; i < 8; i++, from += head_dim * 2) v[i] = *reinterpret_cast<const Word2*>(from);
    };
    const int all_from = mem.query[kDraftQueries - 1].first - seg.start, all_to = mem.query[0].last - seg.start, end = (seg.last + 1) * kTile;
    Word2 next[8];
    load(next, seg.first * kTile);
    LUCE_ROLLED
    for (int at = seg.first * kTile; at < end; at += 8) {
        Word2 now[8];
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) now[i] = next[i];
        load(next, at + 8 < end ? at + 8 : at);
        if (at % kTile == 0)
            LUCE_UNROLL
            for (int r = 0; r < 4; r++) {
                const float c = mem.rescale[at / kTile * kDraftQueries + query_of(r)];
                for (int i = 0; i < 4; i++) o[r][i] = o[r][i] * c;
            }
        if (at >= all_from && at + 7 <= all_to) add_keys<false>(mem, at, seg.start, now, o);
        else add_keys<true>(mem, at, seg.start, now, o);
    }
}

// Scores of a segment's keys for the workgroup's queries, as weights in its memory. at: as stage_queries takes it.
template <bool kMany> LUCE_DEVICE void weigh_keys(const AttentionArgs& a, DraftMemory& mem, const DraftSegment& seg, int at) {
    const int wave = uniform(thread_id() / 32);
    const bool scores = 2 * wave <= seg.last && 2 * wave + 1 >= seg.first;
    const uint8_t* keys = own_keys(seg);
    Word2 next[8];
    float s[8][4];
    if (scores) load_keys(next, keys, 0);
    stage_queries(a, mem, at);
    barrier();
    if (scores) score_keys(mem, keys, a.head_dim, next, s);
    barrier();  // the queries have been read
    if (scores) store_scores(mem, a.factor, s);
    barrier();
    soften<kMany>(mem, seg);
    barrier();
}

// The segment's lines on their way to the cache; the workgroups of a part share them out.
LUCE_DEVICE void prefetch_segment(const DraftSegment& seg, int own, int groups) {
    const int bytes = (seg.last + 1) * static_cast<int>(seg.stride);
    for (int at = seg.first * static_cast<int>(seg.stride) + (thread_id() + own * kDraftThreads) * 128; at < bytes; at += groups * kDraftThreads * 128)
        prefetch(seg.tiles + at);
}

// The values of a segment join those before it.
template <int kBlocks> LUCE_DEVICE void join_values(DraftMemory& mem, const DraftSegment& seg, int head_dim, float (&sums)[kBlocks][4][4]) {
    const int wave = uniform(thread_id() / 32);
    LUCE_UNROLL
    for (int block = 0; block < kBlocks; block++) {
        const int dim = 32 * (wave + kDraftWaves * block);
        float o[4][4] = {};
        if (dim < head_dim) add_values(mem, seg, head_dim, dim, o);
        LUCE_UNROLL
        for (int r = 0; r < 4; r++) {
            const Joint joint = mem.joint[query_of(r)];
            LUCE_UNROLL
            for (int i = 0; i < 4; i++) sums[block][r][i] = joint(sums[block][r][i], o[r][i]);
        }
    }
}

// The sums of a group of segments join those before it, which lie where the part's are to be.
template <bool kMany, int kBlocks> LUCE_DEVICE void store_group(const AttentionArgs& a, DraftMemory& mem, const float (&sums)[kBlocks][4][4]) {
    const int wave = thread_id() / 32, lane = lane_id();
    LUCE_UNROLL
    for (int r = 0; r < 4; r++) {
        const DraftQuery query = mem.query[query_of(r)];
        const DraftTotal group = mem.group[query_of(r)];
        DraftTotal total = kMany ? mem.before[query_of(r)] : nothing();
        if (!group.any || query.at < 0) continue;
        const Joint joint = join(total, group);
        float* out = part_at(a, query.part, 0, query.at);
        LUCE_UNROLL
        for (int b = 0; b < kBlocks; b++) {
            const int dim = 32 * (wave + kDraftWaves * b) + lane % 8 * 4;
            for (int i = 0; i < 4 && dim < a.head_dim; i++) out[dim + i] = joint(joint.any ? out[dim + i] : 0.0f, sums[b][r][i]);
        }
        if (wave == 0 && lane % 8 == 0) out[a.head_dim] = total.m, out[a.head_dim + 1] = total.l;
    }
}

// Grid x: parts x tiles of queries, y: spans, z: kv heads. kBlocks: blocks of 32 dimensions a wave; kMany: parts of more than one segment.
template <int kBlocks, bool kMany> LUCE_DEVICE void draft_part(const DraftAttentionArgs& d) {
    static_assert(kBlocks * kDraftWaves * 32 <= kScoreStride, "the queries find room where their scores will be");
    LUCE_SHARED(DraftMemory, memory, 1);
    const AttentionArgs& a = d.kv;
    if (block_id_y() >= a.batch->spans) return;
    const ops::Span span = a.batch->span[block_id_y()];
    const int tile = block_id() % a.query_tiles, n = tile * kDraftQueries, queries = span.rows * (a.heads / a.kv_heads);
    if (n >= queries) return;
    // Parts are numbered by all keys here, and from a row's first part on in its results. From row to row neither the first nor the last key falls.
    const int part = ops::visible(span, span.first, d.window, d.causal != 0).first / a.part_keys + block_id() / a.query_tiles, start = part * a.part_keys;
    const int first = draft_query(d, span, n, 0).first, last = draft_query(d, span, n + kDraftQueries - 1, 0).last;
    if (start > last || start + a.part_keys <= first) return;
    DraftMemory& mem = memory[0];
    const int q = thread_id() % kDraftQueries;
    const DraftQuery own = draft_query(d, span, n + q, part);
    if (thread_id() < kDraftQueries) mem.query[q] = own, mem.group[q] = mem.before[q] = nothing();
    float sums[kBlocks][4][4] = {};
    for (int s = start > first ? start : first / ops::kPage * ops::kPage, more = 1; more; s += ops::kPage) {
        const int from = first > s ? first - s : 0, to = last - s < ops::kPage ? last - s : ops::kPage - 1, next = s + ops::kPage;
        const DraftSegment seg{tile_of<KvForm::F16>(a, span.slot, block_id_z(), s), 2 * tile_bytes<KvForm::F16>(a.head_dim), s, from / kTile, to / kTile};
        prefetch_segment(seg, tile, (queries + kDraftQueries - 1) / kDraftQueries);
        weigh_keys<kMany>(a, mem, seg, own.at);
        join_values(mem, seg, a.head_dim, sums);
        more = kMany && next - start < a.part_keys && next <= last;
        if (more) barrier();  // the weights have been read
        if (more && next % kGroupKeys != 0) continue;
        store_group<kMany>(a, mem, sums);
        if (!more) return;
        barrier();
        if (thread_id() < kDraftQueries) join(mem.before[q], mem.group[q]), mem.group[q].any = 0;
    }
}

// Grid x: rows, y: eights of heads.
LUCE_DEVICE void draft_join(const DraftAttentionArgs& d) {
    const AttentionArgs& a = d.kv;
    const int row = block_id(), head = block_id_y() * kPartWaves + thread_id() / 32, lane = lane_id(), D = a.head_dim;
    if (row >= a.batch->rows || head >= a.heads) return;
    const ops::Visible keys = visible_keys(d, row);
    const int base = keys.first / a.part_keys, parts = keys.last / a.part_keys - base + 1;
    Part all = {};
    for (int i = 0, n; i < parts; i += n) {  // a group's segments first; larger parts are groups
        const int left = kGroupSegments - (base + i) % kGroupSegments;
        n = a.part_keys == ops::kPage && left < parts - i ? left : parts - i;
        merge(all, join_parts(a, row, head, i, n));
    }
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
