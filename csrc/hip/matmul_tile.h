// The product for 8 rows and more (matmul.h): matrix instructions on fragments of 16 outputs and 16 rows. A wave takes 32 outputs where its weights come
// through a ring, else 16.
#pragma once
#include "hip/matmul.h"

namespace lucebox::hip {
namespace {

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
// Of 16 rows' values those of the lane's sums; where a lane holds two outputs, sums come in pairs of rows, the same for both.
LUCE_DEVICE void take_rows(float (&v)[8], const float* p, int lane) {
    if constexpr (Map::kFragRows == 2) {
        LUCE_UNROLL
        for (int i = 0; i < 8; i += 4) {
            const uint64_t pair = *reinterpret_cast<const uint64_t*>(p + Map::acc_r(lane, i));  // of a struct nvcc makes two loads
            v[i] = v[i + 2] = ops::from_bits(static_cast<uint32_t>(pair)), v[i + 1] = v[i + 3] = ops::from_bits(static_cast<uint32_t>(pair >> 32));
        }
    } else {
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) v[i] = p[Map::acc_r(lane, i)];
    }
}

template <class T> struct TileGroup {
    typename T::template Raw<Map::kFragChunks> raw[Map::kFragRows];
};
template <class T, class Bytes> LUCE_DEVICE void load_tile_group(TileGroup<T>& t, Bytes record, int first_row, int g, int lane) {
    LUCE_UNROLL
    for (int r = 0; r < Map::kFragRows; r++)
        T::template load<Map::kFragChunks>(t.raw[r], record, first_row + Map::frag_row(lane, r), g, Map::frag_chunk(lane));
}
template <class T> struct TileScales {
    typename T::Scales of[Map::kFragRows];
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int first_row, int lane) {
        LUCE_UNROLL
        for (int r = 0; r < Map::kFragRows; r++) of[r].load(record, first_row + Map::frag_row(lane, r));
    }
};
// Of a type with 16 levels, levels may be picked in the nibbles' own order from two tables, which takes a product each; a lane's chunk of activations
// is put into that order.
template <class T, int kRows> LUCE_DEVICE constexpr int level_parts() { return kSplitLevels && T::kLevels && kRows <= 16 ? 2 : 1; }
template <int kParts> LUCE_DEVICE void order_rows(uint32_t (&x)[4]) {
    if constexpr (kParts == 2) {
        LUCE_UNROLL
        for (int r = 0; r < 2; r++) {
            const uint32_t low = x[r], high = x[2 + r];
            x[r] = perm(high, low, 0x05010400u), x[2 + r] = perm(high, low, 0x07030602u);
        }
    }
}
template <class T> LUCE_DEVICE void pick_tile_group(const TileGroup<T>& t, uint32_t (&low)[4], uint32_t (&high)[4], const uint32_t* table) {
    const SplitLevels levels = lane_levels(table);
    LUCE_UNROLL
    for (int r = 0; r < 2; r++) {
        uint32_t l[2], h[2];
        pick_levels(t.raw[r].q[0], levels, l, h);
        low[r] = l[0], low[2 + r] = l[1], high[r] = h[0], high[2 + r] = h[1];
    }
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

// A lane's weights of a group and 16 outputs, in parts that add up.
template <int kParts> using TileWeights = uint32_t[kParts][4];

// P of the contract as floats: 16 outputs times 16 rows. scale: of the lane's outputs, for blocks of 256 with one scale a group.
template <class T, int kRows, int kParts>
LUCE_DEVICE void tile_products(float (&p)[8], const TileWeights<kParts>& w, const uint32_t (&q)[4], const TileScales<T>& s, const float (&scale)[Map::kFragRows],
                               int g) {
    int sum[8];
    if constexpr (T::kHalves) {
        int high[8];
        tile16<kRows>(sum, high, w[0], q);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) {
            const typename T::Scales& of = s.of[Map::acc_row(i)];
            p[i] = static_cast<float>(mad24(of.scale(g, 1), high[i], mad24(of.scale(g, 0), sum[i], 0)));
        }
    } else {
        tile32<kRows, true, kSumBits>(sum, w[0], q);
        if constexpr (kParts == 2) tile32<kRows, true, 0, true>(sum, w[1], q);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) {
            const float from = ops::from_bits(static_cast<uint32_t>(sum[i])), by = scale[Map::acc_row(i)];
            p[i] = T::kBlock == 32 ? from - kSumStart : ops::fma(from, by, -kSumStart * by);
        }
    }
}

// What a lane adds up: its eight sums of each 16 outputs and 16 rows.
template <int kOut, int kTiles> using TileChains = Chain[kOut][kTiles][8];

// A lane's activations of a group and 16 rows, `at` being the group's place in their tile (params.h).
template <class T, int kParts> struct RowsGroup {
    uint32_t q[4];
    float d[8], extra[8];
    LUCE_DEVICE_MEMBER void load(const Rows& x, size_t at) {
        const int lane = lane_id();
        load_rows(q, x.q + at * 32, lane);
        take_rows(d, x.d + at, lane);
        if constexpr (T::kMin) take_rows(extra, x.sums + 2 * at + (T::kHalves ? kTileRows : 0), lane);
    }
};

// A group of the lane's outputs times 16 rows, tile t of them.
template <class T, int kRows, int kOut, int kTiles, int kParts>
LUCE_DEVICE void tile_rows(TileChains<kOut, kTiles>& c, int t, const TileWeights<kParts> (&w)[kOut], const TileScales<T> (&s)[kOut],
                           const float (&scale)[kOut][Map::kFragRows], int g, const RowsGroup<T, kParts>& x) {
    uint32_t q[4] = {x.q[0], x.q[1], x.q[2], x.q[3]};
    order_rows<kParts>(q);
    LUCE_UNROLL
    for (int o = 0; o < kOut; o++) {
        float p[8];
        tile_products<T, kRows, kParts>(p, w[o], q, s[o], scale[o], g);
        LUCE_UNROLL
        for (int i = 0; i < 8; i++) {
            const float extra = T::kMin ? x.extra[i] : 0.0f;
            if (kRows > 8 || Map::kFragRows == 1 || i < 4)
                add_group<T>(c[o][t][i], s[o].of[Map::acc_row(i)], g, p[i], x.d[i], extra, ops::to_bits(extra));
        }
    }
}

// Of blocks of 256 with one scale a group that of a lane's outputs.
template <class T, int kOut> LUCE_DEVICE void group_scales(float (&scale)[kOut][Map::kFragRows], const TileScales<T> (&s)[kOut], int g) {
    LUCE_UNROLL
    for (int r = 0; r < kOut * Map::kFragRows; r++) {
        const typename T::Scales& of = s[r / Map::kFragRows].of[r % Map::kFragRows];
        scale[r / Map::kFragRows][r % Map::kFragRows] = T::kBlock == 256 && !T::kHalves ? static_cast<float>(of.scale(g, 0)) : 1.0f;
    }
}

// A group of the lane's outputs times all rows; x: those of the first tile; `at`: the group's place there.
template <class T, int kRows, int kOut, int kTiles, int kParts>
LUCE_DEVICE void tile_group(TileChains<kOut, kTiles>& c, const TileWeights<kParts> (&w)[kOut], const TileScales<T> (&s)[kOut], int g,
                            const RowsGroup<T, kParts>& x, const Rows& rows, size_t at) {
    float scale[kOut][Map::kFragRows];
    group_scales<T, kOut>(scale, s, g);
    tile_rows<T, kRows, kOut, kTiles, kParts>(c, 0, w, s, scale, g, x);
    LUCE_UNROLL
    for (int t = 1; t < kTiles; t++) {
        schedule_fence();
        RowsGroup<T, kParts> more;
        more.load(rows, at + static_cast<size_t>(t) * static_cast<size_t>(rows.columns / 32) * kTileRows);
        tile_rows<T, kRows, kOut, kTiles, kParts>(c, t, w, s, scale, g, more);
    }
}

template <class T, int kOut, class Bytes> LUCE_DEVICE void load_tile_groups(TileGroup<T> (&raw)[kOut], Bytes unit, int first_row, int g) {
    LUCE_UNROLL
    for (int o = 0; o < kOut; o++) load_tile_group<T>(raw[o], record_of<T>(unit, g), first_row + 16 * o, in_block<T>(g), lane_id());
}
template <class T, int kOut, class Bytes> LUCE_DEVICE void load_scales(TileScales<T> (&s)[kOut], Bytes unit, int first_row, int g) {
    LUCE_UNROLL
    for (int o = 0; o < kOut; o++) s[o].load(record_of<T>(unit, g), first_row + 16 * o, lane_id());
}
template <class T, int kOut, int kParts>
LUCE_DEVICE void decode_tile(TileWeights<kParts> (&w)[kOut], const TileGroup<T> (&raw)[kOut], int g, const uint32_t* table) {
    LUCE_UNROLL
    for (int o = 0; o < kOut; o++) {
        if constexpr (kParts == 2) pick_tile_group<T>(raw[o], w[o][0], w[o][1], table);
        else decode_tile_group<T>(raw[o], g, lane_id(), w[o][0], table);
    }
}

// Whether a unit's weights are loaded before its first product: from device memory, and for 16 rows, whose registers are full (59 us against 56 for
// gate and up of the 27B on an H200). Else they come group by group, and rows a group ahead (44 us and 96 registers for 8 rows).
template <int kRows, int kOut> LUCE_DEVICE constexpr bool loads_at_once() { return kOut == 1 || kRows > 8; }

// A unit's groups, of which `at` is the first's place. next: rows a group ahead, where these are loaded so: on entry those of the first, in the end, if there are
// more groups in the segment, those of the next unit.
template <class T, int kRows, int kOut, int kTiles, int kParts, class Bytes>
LUCE_DEVICE void tile_unit(TileChains<kOut, kTiles>& c, RowsGroup<T, kParts>& next, Bytes unit, int first_row, const Rows& x, size_t at, bool more,
                           const uint32_t* table) {
    constexpr bool kAtOnce = loads_at_once<kRows, kOut>();
    constexpr int kScales = T::kBlock == 256 ? 1 : kUnitGroups;
    TileGroup<T> raw[kUnitGroups][kOut];
    TileScales<T> scales[kScales][kOut];
    if constexpr (T::kBlock == 256) load_scales<T, kOut>(scales[0], unit, first_row, 0);
    LUCE_UNROLL
    for (int g = 0; g < kUnitGroups && kAtOnce; g++) {
        load_tile_groups<T, kOut>(raw[g], unit, first_row, g);
        if constexpr (T::kBlock == 32) load_scales<T, kOut>(scales[g], unit, first_row, g);
    }
    LUCE_UNROLL
    for (int g = 0; g < kUnitGroups; g++) {
        if (T::kBlock == 32 || T::kHalves || g % 2 == 0) schedule_fence();
        TileWeights<kParts> w[kOut];
        const size_t place = at + static_cast<size_t>(g * kTileRows);
        RowsGroup<T, kParts> here = next;
        if constexpr (kAtOnce) {
            here.load(x, place);
        } else {
            if (g + 1 < kUnitGroups || more) next.load(x, place + kTileRows);
            load_tile_groups<T, kOut>(raw[g], unit, first_row, g);
            if constexpr (T::kBlock == 32) load_scales<T, kOut>(scales[g], unit, first_row, g);
        }
        decode_tile<T, kOut, kParts>(w, raw[g], in_block<T>(g), table);
        tile_group<T, kRows, kOut, kTiles, kParts>(c, w, scales[T::kBlock == 256 ? 0 : g], in_block<T>(g), here, x, place);
    }
    LUCE_UNROLL
    for (int i = 0; i < kOut * kTiles * 8; i++) {
        const int o = i / (kTiles * 8), e = i % 8;
        end_block<T>(c[o][i / 8 % kTiles][e], scales[0][o].of[Map::acc_row(e)]);
    }
}

// Segment s; `at`: the place of its first group.
template <class T, int kRows, int kOut, int kTiles>
LUCE_DEVICE void tile_segment(TileChains<kOut, kTiles>& c, Ring<T>& ring, int first_row, int s, int groups, const Rows& x, size_t at, const uint32_t* table) {
    constexpr int kParts = level_parts<T, kRows>();
    const int whole = groups / kUnitGroups, lane = lane_id();
    RowsGroup<T, kParts> next = {};
    if constexpr (!loads_at_once<kRows, kOut>()) next.load(x, at);
    LUCE_ROLLED
    for (int b = 0; b < whole; b++) {
        const size_t here = at + static_cast<size_t>(b * kUnitGroups * kTileRows);
        if constexpr (kOut == 2) {
            tile_unit<T, kRows, kOut, kTiles, kParts>(c, next, ring.wait(), first_row, x, here, b + 1 < whole, table);
            ring.release();
        } else {
            const size_t unit = static_cast<size_t>(uniform(s * (kGroups / kUnitGroups) + b));  // hides the step: clang made a pointer for each load
            tile_unit<T, kRows, kOut, kTiles, kParts>(c, next, ring.records + unit * unit_bytes<T>(), first_row, x, here, b + 1 < whole, table);
        }
    }
    if constexpr (T::kBlock == 32) {  // K need not be a multiple of 256
        LUCE_ROLLED
        for (int g = whole * kUnitGroups; g < groups; g++) {
            const uint8_t* record = ring.records + static_cast<size_t>(s * kGroups + g) * T::kRecord;
            TileGroup<T> raw[kOut];
            TileScales<T> scales[kOut];
            TileWeights<kParts> w[kOut];
            for (int o = 0; o < kOut; o++)
                load_tile_group<T>(raw[o], record, first_row + 16 * o, 0, lane), scales[o].load(record, first_row + 16 * o, lane);
            RowsGroup<T, kParts> here;
            here.load(x, at + static_cast<size_t>(g * kTileRows));
            decode_tile<T, kOut, kParts>(w, raw, 0, table);
            tile_group<T, kRows, kOut, kTiles, kParts>(c, w, scales, 0, here, x, at + static_cast<size_t>(g * kTileRows));
        }
    }
}

template <class T, int kRows> LUCE_DEVICE void matmul_tile(const MatmulArgs& a) {
    constexpr int kOut = kAsyncCopies && kRows <= 16 ? 2 : 1, kOutputs = 16 * kOut, kTiles = (kRows + 15) / 16;
    constexpr int kLine = kOutputs + 1, kSums = kTiles * 16 * kLine;  // a row and one place more: no bank conflicts
    constexpr int kWave = kOut == 2 ? kRingSlots * unit_bytes<T>() : 0;
    LUCE_DYNAMIC_SHARED(memory);  // [waves][kWave] ring, [slots][kSums] sums, [kRows * kOutputs] totals
    LUCE_SHARED(Word4, table_memory, (T::kTableWords + 3) / 4 + 1);
    const auto [part, tile] = find_part(a);
    const int lane = lane_id(), wave = uniform(thread_id() / 32), row = block_id_y() * kRows, first_row = tile * kOutputs % kRecordRows;
    const int k = a.x.columns;
    const Cut cut = cut_of(a);
    const size_t rows_at = static_cast<size_t>(row / kTileRows) * static_cast<size_t>(k / 32) * kTileRows;
    float* sums = reinterpret_cast<float*>(memory + a.waves * kWave);
    float* totals = sums + a.slots * kSums;
    Ring<T> ring{memory + wave * kWave, part.weight + static_cast<size_t>(tile * kOutputs / kRecordRows) * static_cast<size_t>(k / T::kBlock) * T::kRecord,
                 walk_of(cut, wave, a.waves, k), 0};
    if constexpr (kOut == 2) ring.start();
    uint32_t* table = reinterpret_cast<uint32_t*>(table_memory);
    T::fill_table(table, thread_id(), a.waves * 32);
    if (T::kTableWords > 0) barrier();
    for (int s0 = 0; s0 < cut.count; s0 += a.slots) {
        const int slots = cut.count - s0 < a.slots ? cut.count - s0 : a.slots;
        for (int slot = wave; slot < slots; slot += a.waves) {
            const int s = cut.first + s0 + slot, left = k / 32 - s * kGroups, groups = left < kGroups ? left : kGroups;
            TileChains<kOut, kTiles> c = {};
            tile_segment<T, kRows, kOut, kTiles>(c, ring, first_row, s, groups, a.x, rows_at + static_cast<size_t>(s * kGroups * kTileRows), table);
            LUCE_UNROLL
            for (int i = 0; i < kOut * kTiles * 8; i++) {
                const int o = i / (kTiles * 8), t = i / 8 % kTiles, e = i % 8;
                sums[slot * kSums + (t * 16 + Map::acc_r(lane, e)) * kLine + 16 * o + Map::frag_row(lane, Map::acc_row(e))] = c[o][t][e].acc;
            }
        }
        barrier();
        finish_slots<kRows * kOutputs>(a, cut, s0, slots, sums, kSums, totals, [](int i) { return i / kOutputs * kLine + i % kOutputs; },
                                       [&](int i, float total) { put(a, part, row + i / kOutputs, tile * kOutputs + i % kOutputs, total); });
        if (s0 + slots < cut.count) barrier();
    }
}

}  // namespace
}  // namespace lucebox::hip
