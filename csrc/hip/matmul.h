// ops/matmul.h for quantised weights, two ways with the same bits. A workgroup takes a tile of outputs, a wave segments of 1,024 columns in turn;
// segment sums go through workgroup memory and are added in order.
//   dot   32 outputs, kRows (1, 2, 4) rows: a lane owns an output, dot4, activations staged in workgroup memory
//   tile  16 outputs, kRows (8, 16, 32, 64) rows: matrix instructions on fragments (arch/maps.h)
// Grid x: tiles of the parts, y: row groups. Rows beyond a.rows are computed from what lies in the padding and not stored.
#pragma once
#include "hip/matmul_types.h"

namespace lucebox::hip {
namespace {

inline constexpr int kMaxWaves = 8;       // of a matmul workgroup
inline constexpr int kGroups = 32;        // 32s in a segment
inline constexpr int kDotRow = kGroups * (32 + 4 + 8);  // bytes of a row's segment in workgroup memory: q, d, sums

struct PartTile {
    MatmulPart part;
    int tile;
};
LUCE_DEVICE PartTile find_part(const MatmulArgs& a) {
    int p = 0;
    while (p + 1 < a.parts && block_id() >= a.part[p + 1].first) p++;
    return {a.part[p], block_id() - a.part[p].first};
}
LUCE_DEVICE void put(const MatmulArgs& a, const MatmulPart& part, int row, int output, float sum) {
    if (row >= a.rows || output >= part.outputs) return;
    float& y = part.y[static_cast<size_t>(row) * static_cast<size_t>(part.outputs) + static_cast<size_t>(output)];
    y = a.residual ? y + sum : sum;
}

// What a row adds in a block: f and g are the block's chains, acc the segment's.
struct Chain {
    float acc, f, g;
};
template <class T> LUCE_DEVICE void add_group(Chain& c, const typename T::Scales& s, int g, int p, float d, float dsum, uint32_t sums) {
    if constexpr (T::kBlock == 32) {
        c.acc = ops::fma(s.d() * d, static_cast<float>(p), c.acc);
        if constexpr (T::kMin) c.acc = ops::fma(s.dmin(), dsum, c.acc);
    } else {
        c.f = ops::fma(d, static_cast<float>(p), c.f);
        if constexpr (T::kMin && T::kHalves) {
            c.g = ops::fma(static_cast<float>(s.min(g, 0)), d * static_cast<float>(static_cast<int16_t>(sums)), c.g);
            c.g = ops::fma(static_cast<float>(s.min(g, 1)), d * static_cast<float>(static_cast<int16_t>(sums >> 16)), c.g);
        } else if constexpr (T::kMin) {
            c.g = ops::fma(static_cast<float>(s.min(g, 0)), dsum, c.g);
        }
    }
}
template <class T> LUCE_DEVICE void end_block(Chain& c, const typename T::Scales& s) {
    if constexpr (T::kBlock == 256) {
        c.acc = ops::fma(s.d(), c.f, c.acc);
        if constexpr (T::kMin) c.acc = ops::fma(-s.dmin(), c.g, c.acc);
        c.f = c.g = 0;
    }
}

// A row's segment in workgroup memory: [group][rows] of each kind.
template <int kRows> struct Staged {
    uint8_t* at;
    LUCE_DEVICE_MEMBER Word4* q(int group, int row) const { return reinterpret_cast<Word4*>(at + (group * kRows + row) * 32); }
    LUCE_DEVICE_MEMBER float* d() const { return reinterpret_cast<float*>(at + kGroups * kRows * 32); }
    LUCE_DEVICE_MEMBER float* dsum() const { return d() + kGroups * kRows; }
    LUCE_DEVICE_MEMBER float* halves() const { return d() + 2 * kGroups * kRows; }
};
template <int kRows> LUCE_DEVICE void stage(const Staged<kRows>& s, const Rows& x, int row, int first_group, int groups) {
    const size_t base = (static_cast<size_t>(row / kTileRows) * static_cast<size_t>(x.columns / 32) + static_cast<size_t>(first_group)) * kTileRows;
    const int r = row % kTileRows;
    for (int i = lane_id(); i < groups * kRows * 2; i += 32) {
        const int g = i / (2 * kRows), in = i % (2 * kRows);
        reinterpret_cast<Word4*>(s.at)[i] = reinterpret_cast<const Word4*>(x.q + (base + static_cast<size_t>(g * kTileRows + r)) * 32)[in];
    }
    for (int i = lane_id(); i < groups * kRows; i += 32) {
        const size_t at = base + static_cast<size_t>(i / kRows * kTileRows), in = static_cast<size_t>(r + i % kRows);
        s.d()[i] = x.d[at + in], s.dsum()[i] = x.sums[2 * at + in], s.halves()[i] = x.sums[2 * at + kTileRows + in];
    }
}

// Dot of a group: P of the contract.
template <class T>
LUCE_DEVICE int dot_group(const uint32_t (&lo)[4], const uint32_t (&hi)[4], const Word4& a, const Word4& b, const typename T::Scales& s, int g) {
    int low = dot4(lo[1], a.z, dot4(lo[0], a.x, 0)), high = dot4(hi[1], a.w, dot4(hi[0], a.y, T::kHalves ? 0 : low));
    if constexpr (T::kHalves) {
        low = dot4(lo[3], b.z, dot4(lo[2], b.x, low)), high = dot4(hi[3], b.w, dot4(hi[2], b.y, high));
        return mad24(s.scale(g, 1), high, mad24(s.scale(g, 0), low, 0));
    } else {
        high = dot4(lo[3], b.z, dot4(lo[2], b.x, high));
        high = dot4(hi[3], b.w, dot4(hi[2], b.y, high));
        return T::kBlock == 32 ? high : mad24(s.scale(g, 0), high, 0);
    }
}

// Eight groups: a block of 256, or eight blocks of 32 (`groups` of them are there).
template <class T, int kRows>
LUCE_DEVICE void dot_eight(Chain (&c)[kRows], const uint8_t* record, const Staged<kRows>& x, int first_group, int groups, const uint32_t* table) {
    constexpr bool kWide = T::kBlock == 256;
    typename T::template Raw<4> raw[8];
    typename T::Scales scales[kWide ? 1 : 8];
    const int row = lane_id();
    if constexpr (kWide) scales[0].load(record, row);
    LUCE_UNROLL
    for (int g = 0; g < 8; g++) {
        const int at = g < groups ? g : groups - 1;
        T::template load<4>(raw[g], kWide ? record : record + at * T::kRecord, row, kWide ? g : 0, 0);
        if constexpr (!kWide) scales[g].load(record + at * T::kRecord, row);
    }
    LUCE_UNROLL
    for (int g = 0; g < 8; g++) {
        if (g >= groups) break;
        uint32_t lo[4], hi[4];
        T::template decode<4>(raw[g], kWide ? g : 0, 0, lo, hi, table);
        const typename T::Scales& s = scales[kWide ? 0 : g];
        LUCE_UNROLL
        for (int m = 0; m < kRows; m++) {
            const Word4* q = x.q(first_group + g, m);
            const int p = dot_group<T>(lo, hi, q[0], q[1], s, kWide ? g : 0), at = (first_group + g) * kRows + m;
            add_group<T>(c[m], s, kWide ? g : 0, p, x.d()[at], T::kMin && !T::kHalves ? x.dsum()[at] : 0.0f,
                         T::kMin && T::kHalves ? ops::to_bits(x.halves()[at]) : 0u);
        }
    }
    LUCE_UNROLL
    for (int m = 0; m < kRows; m++) end_block<T>(c[m], scales[0]);
}

template <class T, int kRows> LUCE_DEVICE void matmul_dot(const MatmulArgs& a) {
    LUCE_DYNAMIC_SHARED(memory);  // [waves][kRows * kDotRow], then [kRows * 32] totals
    LUCE_SHARED(uint32_t, table, T::kTableWords > 0 ? T::kTableWords : 1);
    const auto [part, tile] = find_part(a);
    const int lane = lane_id(), wave = uniform(thread_id() / 32), row = block_id_y() * kRows;
    const int k = a.x.columns, segments = (k + ops::kSegment - 1) / ops::kSegment;
    const uint8_t* records = part.weight + static_cast<size_t>(tile) * static_cast<size_t>(k / T::kBlock) * T::kRecord;
    const Staged<kRows> x{memory + wave * kRows * kDotRow};
    float* totals = reinterpret_cast<float*>(memory + a.waves * kRows * kDotRow);
    T::fill_table(table, thread_id(), a.waves * 32);
    for (int s0 = 0; s0 < segments; s0 += a.waves) {
        const int s = s0 + wave, left = (k - s * ops::kSegment) / 32, groups = s >= segments ? 0 : left < kGroups ? left : kGroups;
        Chain c[kRows] = {};
        stage(x, a.x, row, s * kGroups, groups);
        barrier();
        for (int g = 0; g < groups; g += 8) {
            const uint8_t* record = records + static_cast<size_t>((s * kGroups + g) * 32 / T::kBlock) * T::kRecord;
            dot_eight<T, kRows>(c, record, x, g, groups - g < 8 ? groups - g : 8, table);
        }
        barrier();
        for (int m = 0; m < kRows; m++) reinterpret_cast<float*>(x.at)[m * 32 + lane] = c[m].acc;
        barrier();
        for (int i = thread_id(); i < kRows * 32; i += a.waves * 32) {
            for (int w = 0; w < a.waves && s0 + w < segments; w++) {
                const float sum = reinterpret_cast<const float*>(memory + w * kRows * kDotRow)[i];
                totals[i] = s0 + w == 0 ? sum : totals[i] + sum;
            }
        }
        barrier();
    }
    for (int i = thread_id(); i < kRows * 32; i += a.waves * 32) put(a, part, row + i / 32, tile * 32 + i % 32, totals[i]);
}

// ---- tile

// A fragment of activations: the 32 values of a group of 16 rows, 512 bytes.
LUCE_DEVICE void load_rows(uint32_t (&x)[4], const uint8_t* group, int lane) {
    LUCE_UNROLL
    for (int r = 0; r < Map::kFragRows; r++) {
        const uint8_t* p = group + Map::frag_row(lane, r) * 32 + Map::frag_chunk(lane) * 8;
        if constexpr (Map::kFragChunks == 2) {
            const Word4 v = *reinterpret_cast<const Word4*>(p);
            x[0] = v.x, x[1] = v.z, x[2] = v.y, x[3] = v.w;
        } else {
            const Word2 v = *reinterpret_cast<const Word2*>(p);
            x[r] = v.x, x[2 + r] = v.y;
        }
    }
}
// Of 16 rows' values those of the lane's sums.
LUCE_DEVICE void take_rows(float (&v)[8], const float* p, int lane) {
    LUCE_UNROLL
    for (int i = 0; i < 8; i++) v[i] = p[Map::acc_r(lane, i)];
}

template <class T> struct TileGroup {
    typename T::template Raw<Map::kFragChunks> raw[Map::kFragRows];
};
template <class T> LUCE_DEVICE void load_tile_group(TileGroup<T>& t, const uint8_t* record, int first_row, int g, int lane) {
    LUCE_UNROLL
    for (int r = 0; r < Map::kFragRows; r++)
        T::template load<Map::kFragChunks>(t.raw[r], record, first_row + Map::frag_row(lane, r), g, Map::frag_chunk(lane));
}
template <class T> LUCE_DEVICE void load_tile_scales(typename T::Scales (&s)[Map::kFragRows], const uint8_t* record, int first_row, int lane) {
    LUCE_UNROLL
    for (int r = 0; r < Map::kFragRows; r++) s[r].load(record, first_row + Map::frag_row(lane, r));
}
template <class T> LUCE_DEVICE void decode_tile_group(const TileGroup<T>& t, int g, int lane, uint32_t (&w)[4], const uint32_t* table) {
    LUCE_UNROLL
    for (int r = 0; r < Map::kFragRows; r++) {
        uint32_t lo[Map::kFragChunks], hi[Map::kFragChunks];
        T::template decode<Map::kFragChunks>(t.raw[r], g, Map::frag_chunk(lane), lo, hi, table);
        LUCE_UNROLL
        for (int i = 0; i < Map::kFragChunks; i++) w[r + i] = lo[i], w[2 + r + i] = hi[i];
    }
}
// One group of 16 outputs times 16 rows.
template <class T, int kRows>
LUCE_DEVICE void tile_group(Chain (&c)[8], const uint32_t (&w)[4], const typename T::Scales* s, int g, const Rows& x, size_t at, int lane) {
    uint32_t q[4];
    float d[8], extra[8] = {};
    int p[8];
    load_rows(q, x.q + at * 32, lane);
    take_rows(d, x.d + at, lane);
    if constexpr (T::kMin) take_rows(extra, x.sums + 2 * at + (T::kHalves ? kTileRows : 0), lane);
    if constexpr (T::kHalves) {
        int high[8];
        tile16<kRows>(p, high, w, q);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) p[i] = mad24(s[Map::acc_row(i)].scale(g, 1), high[i], mad24(s[Map::acc_row(i)].scale(g, 0), p[i], 0));
    } else {
        tile32<kRows>(p, w, q);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++)
            if constexpr (T::kBlock == 256) p[i] = mad24(s[Map::acc_row(i)].scale(g, 0), p[i], 0);
    }
    LUCE_UNROLL
    for (int i = 0; i < 8; i++)
        if (kRows > 8 || Map::kFragRows == 1 || i < 4) add_group<T>(c[i], s[Map::acc_row(i)], g, p[i], d[i], extra[i], ops::to_bits(extra[i]));
}

// A segment: block by block, a block's loads first.
template <class T, int kRows>
LUCE_DEVICE void tile_segment(Chain (&c)[(kRows + 15) / 16][8], const uint8_t* records, int first_row, const Rows& x, int row, int first_group, int groups,
                              const uint32_t* table) {
    constexpr bool kWide = T::kBlock == 256;
    constexpr int kTiles = (kRows + 15) / 16;
    const int lane = lane_id();
    const size_t tile_stride = static_cast<size_t>(x.columns / 32) * kTileRows;
    for (int g0 = 0; g0 < groups; g0 += 8) {
        const uint8_t* record = records + static_cast<size_t>((first_group + g0) * 32 / T::kBlock) * T::kRecord;
        const int n = groups - g0 < 8 ? groups - g0 : 8;
        TileGroup<T> raw[8];
        typename T::Scales scales[kWide ? 1 : 8][Map::kFragRows];
        if constexpr (kWide) load_tile_scales<T>(scales[0], record, first_row, lane);
        LUCE_UNROLL
        for (int g = 0; g < 8; g++) {
            const uint8_t* of = kWide ? record : record + (g < n ? g : n - 1) * T::kRecord;
            load_tile_group<T>(raw[g], of, first_row, kWide ? g : 0, lane);
            if constexpr (!kWide) load_tile_scales<T>(scales[g], of, first_row, lane);
        }
        LUCE_UNROLL
        for (int g = 0; g < 8; g++) {
            if (g >= n) break;
            if (g % 2 == 0) schedule_fence();
            uint32_t w[4];
            decode_tile_group<T>(raw[g], kWide ? g : 0, lane, w, table);
            LUCE_UNROLL
            for (int t = 0; t < kTiles; t++) {
                const size_t at = static_cast<size_t>(row / kTileRows + t) * tile_stride + static_cast<size_t>((first_group + g0 + g) * kTileRows);
                tile_group<T, kRows>(c[t], w, scales[kWide ? 0 : g], kWide ? g : 0, x, at, lane);
            }
        }
        LUCE_UNROLL
        for (int t = 0; t < kTiles; t++)
            LUCE_UNROLL
            for (int i = 0; i < 8; i++) end_block<T>(c[t][i], scales[0][Map::acc_row(i)]);
    }
}

template <class T, int kRows> LUCE_DEVICE void matmul_tile(const MatmulArgs& a) {
    constexpr int kTiles = (kRows + 15) / 16, kSums = kTiles * 16 * 17;  // rows of 17: no bank conflicts
    LUCE_DYNAMIC_SHARED(memory);  // [waves][kSums], then [kRows * 16] totals
    LUCE_SHARED(uint32_t, table, T::kTableWords > 0 ? T::kTableWords : 1);
    const auto [part, tile] = find_part(a);
    const int lane = lane_id(), wave = uniform(thread_id() / 32), row = block_id_y() * kRows;
    const int k = a.x.columns, segments = (k + ops::kSegment - 1) / ops::kSegment;
    const uint8_t* records = part.weight + static_cast<size_t>(tile / 2) * static_cast<size_t>(k / T::kBlock) * T::kRecord;
    float* sums = reinterpret_cast<float*>(memory);
    float* totals = sums + a.waves * kSums;
    T::fill_table(table, thread_id(), a.waves * 32);
    if (T::kTableWords > 0) barrier();
    for (int s0 = 0; s0 < segments; s0 += a.waves) {
        const int s = s0 + wave, left = (k - s * ops::kSegment) / 32, groups = s >= segments ? 0 : left < kGroups ? left : kGroups;
        Chain c[kTiles][8] = {};
        tile_segment<T, kRows>(c, records, tile % 2 * 16, a.x, row, s * kGroups, groups, table);
        LUCE_UNROLL
        for (int t = 0; t < kTiles; t++)
            LUCE_UNROLL
            for (int i = 0; i < 8; i++) sums[wave * kSums + (t * 16 + Map::acc_r(lane, i)) * 17 + Map::frag_row(lane, Map::acc_row(i))] = c[t][i].acc;
        barrier();
        for (int i = thread_id(); i < kRows * 16; i += a.waves * 32)
            for (int w = 0; w < a.waves && s0 + w < segments; w++) {
                const float sum = sums[w * kSums + i / 16 * 17 + i % 16];
                totals[i] = s0 + w == 0 ? sum : totals[i] + sum;
            }
        barrier();
    }
    for (int i = thread_id(); i < kRows * 16; i += a.waves * 32) put(a, part, row + i / 16, tile * 16 + i % 16, totals[i]);
}

}  // namespace
}  // namespace lucebox::hip
