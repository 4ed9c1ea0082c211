// The product for 32 and 64 rows where copies go past the registers (kAsyncCopies; matmul.h): waves of a workgroup take tiles of 16 outputs each, all of
// the same rows, and what they share, rows and weights of 256 columns, comes through a ring in workgroup memory. Where outputs are few, lines of
// waves take segments of the same tiles in turn, and a tile's sums are added line by line.
#pragma once
#include "hip/matmul_tile.h"

namespace lucebox::hip {
namespace {

// A line's share of a ring's slot: weights [records][unit_bytes], then of each 16 rows and group: q [tiles][8][16 rows][32 bytes], d [tiles][8][16 rows],
// where kMin sums likewise. The rows of q stand in the order of a fragment, so that a lane's sums are of consecutive rows (arch/maps.h, key_of_row).
template <class T, int kRows> struct WideUnit {
    static constexpr int kTiles = kRows / kTileRows, kQ = kTiles * kUnitGroups * 512, kD = kTiles * kUnitGroups * 64, kRowBytes = kQ + (T::kMin ? 2 : 1) * kD;
    uint8_t* weights;
    uint8_t* q;
    LUCE_DEVICE_MEMBER WideUnit(uint8_t* at, int records) : weights(at), q(at + records * unit_bytes<T>()) {}
    // What a lane takes of 16 rows and a group.
    LUCE_DEVICE_MEMBER void rows(RowsGroup<T, 1>& x, int tile, int g) const {
        constexpr int kSums = 8 / Map::kFragRows;
        const int lane = lane_id(), at = tile * kUnitGroups + g;
        load_rows(x.q, q + at * 512, lane);
        const float* d = reinterpret_cast<const float*>(q + kQ + at * 64) + 4 * Map::frag_chunk(lane);
        const float* extra = d + kD / 4;
        LUCE_UNROLL
        for (int i = 0; i < kSums; i += 4) {
            const Float4 v = *reinterpret_cast<const Float4*>(d + i), e = T::kMin ? *reinterpret_cast<const Float4*>(extra + i) : Float4{};
            const float own[4] = {v.x, v.y, v.z, v.w}, more[4] = {e.x, e.y, e.z, e.w};
            LUCE_UNROLL
            for (int s = 0; s < 8; s++)
                if (Map::key_of_sum(s) / 4 == i / 4) x.d[s] = own[Map::key_of_sum(s) % 4], x.extra[s] = more[Map::key_of_sum(s) % 4];
        }
    }
};

// What a line of waves reads: units of its segments, s + lines after s.
struct WideSource {
    const uint8_t* records;  // of the workgroup's first output
    int count;               // records, those beyond the part's last left out
    size_t place;            // of the first row's first group
    int line, lines;
    LUCE_DEVICE_MEMBER int unit(int step) const { return (step / 4 * lines + line) * (kGroups / kUnitGroups) + step % 4; }
};

// Step `step` of a line into its share of a slot, by the line's threads.
template <class T, int kRows>
LUCE_DEVICE void fetch_wide(const WideUnit<T, kRows>& to, const WideSource& from, const Rows& x, int step, int thread, int threads) {
    using Unit = WideUnit<T, kRows>;
    const int unit = from.unit(step), all = x.columns / 32, left = all - unit * kUnitGroups, groups = left < kUnitGroups ? left : kUnitGroups;
    const size_t place = from.place + static_cast<size_t>(unit * kUnitGroups * kTileRows), tile_step = static_cast<size_t>(all) * kTileRows;
    if (groups > 0) {
        const size_t record = static_cast<size_t>(x.columns / T::kBlock) * T::kRecord;
        const uint8_t* weights = from.records + static_cast<size_t>(unit) * unit_bytes<T>() + 16 * thread;
        const int bytes = T::kBlock == 256 ? T::kRecord : groups * T::kRecord;
        for (int r = 0; r < from.count; r++, weights += record)
            for (int i = 0; i < bytes - 16 * thread; i += 16 * threads) async_copy16(to.weights + r * unit_bytes<T>() + 16 * thread + i, weights + i);
        for (int i = thread; i < groups * kTileRows * 2; i += threads) {
            const uint8_t* q = x.q + (place + static_cast<size_t>(i / 32 * kTileRows + Map::key_of_row(i % 32 / 2))) * 32 + i % 2 * 16;
            LUCE_UNROLL
            for (int t = 0; t < Unit::kTiles; t++) async_copy16(to.q + t * kUnitGroups * 512 + 16 * i, q + static_cast<size_t>(t) * tile_step * 32);
        }
        for (int i = thread; i < groups * 4; i += threads) {
            const float* d = x.d + place + 4 * i;
            const float* sums = x.sums + 2 * (place + static_cast<size_t>(i / 4 * kTileRows)) + (T::kHalves ? kTileRows : 0) + i % 4 * 4;
            LUCE_UNROLL
            for (int t = 0; t < Unit::kTiles; t++) {
                uint8_t* own = to.q + Unit::kQ + t * kUnitGroups * 64 + 16 * i;
                async_copy16(own, reinterpret_cast<const uint8_t*>(d + static_cast<size_t>(t) * tile_step));
                if constexpr (T::kMin) async_copy16(own + Unit::kD, reinterpret_cast<const uint8_t*>(sums + 2 * static_cast<size_t>(t) * tile_step));
            }
        }
    }
    async_commit();
}

template <class T, int kRows>
LUCE_DEVICE void wide_group(TileChains<1, kRows / 16>& c, const WideUnit<T, kRows>& unit, InGroup record, int first_row, int g, const TileScales<T> (&s)[1],
                            const uint32_t* table) {
    TileGroup<T> raw[1];
    TileWeights<1> w[1];
    float scale[1][Map::kFragRows];
    load_tile_groups<T, 1>(raw, record, first_row, g);
    decode_tile<T, 1, 1>(w, raw, in_block<T>(g), table);
    group_scales<T, 1>(scale, s, in_block<T>(g));
    LUCE_UNROLL
    for (int t = 0; t < kRows / 16; t++) {
        RowsGroup<T, 1> x;
        unit.rows(x, t, g);
        tile_rows<T, kRows, 1, kRows / 16, 1>(c, t, w, s, scale, in_block<T>(g), x);
    }
}

// `groups` of a unit for 16 outputs, `record` being theirs.
template <class T, int kRows>
LUCE_DEVICE void wide_unit(TileChains<1, kRows / 16>& c, const WideUnit<T, kRows>& unit, InGroup record, int first_row, int groups, const uint32_t* table) {
    TileScales<T> s[1];
    if constexpr (T::kBlock == 256) {
        load_scales<T, 1>(s, record, first_row, 0);
        LUCE_UNROLL
        for (int g = 0; g < kUnitGroups; g++) wide_group<T, kRows>(c, unit, record, first_row, g, s, table);
        LUCE_UNROLL
        for (int i = 0; i < kRows / 2; i++) end_block<T>(c[0][i / 8][i % 8], s[0].of[Map::acc_row(i % 8)]);
    } else {
        LUCE_ROLLED  // K need not be a multiple of 256
        for (int g = 0; g < groups; g++) {
            load_scales<T, 1>(s, record, first_row, g);
            wide_group<T, kRows>(c, unit, record, first_row, g, s, table);
        }
    }
}

// A lane's sums of a segment, added to what earlier segments gave; totals: [kRows / 8][32 lanes], the tile's.
template <int kRows> LUCE_DEVICE void add_wide(Float4* totals, const TileChains<1, kRows / 16>& c, bool first) {
    LUCE_UNROLL
    for (int i = 0; i < kRows / 8; i++) {
        Float4& total = totals[i * 32 + lane_id()];
        const Chain* own = c[0][i / 2] + i % 2 * 4;
        const Float4 before = total;
        total = first ? Float4{own[0].acc, own[1].acc, own[2].acc, own[3].acc}
                      : Float4{before.x + own[0].acc, before.y + own[1].acc, before.z + own[2].acc, before.w + own[3].acc};
    }
}
template <int kRows> LUCE_DEVICE void put_wide(const MatmulArgs& a, const MatmulPart& part, int row, int output, const Float4* totals) {
    const int lane = lane_id();
    LUCE_UNROLL
    for (int i = 0; i < kRows / 8; i++) {
        const Float4 total = totals[i * 32 + lane];
        const float sums[4] = {total.x, total.y, total.z, total.w};
        LUCE_UNROLL
        for (int j = 0; j < 4; j++) {
            const int sum = i % 2 * 4 + j;
            put(a, part, row + i / 2 * 16 + 4 * Map::frag_chunk(lane) + Map::key_of_sum(sum), output + Map::frag_row(lane, Map::acc_row(sum)), sums[j]);
        }
    }
}

// Grid x: a.tiles x 16 outputs, y: row groups. a.waves is a.tiles times the lines.
template <class T, int kRows> LUCE_DEVICE void matmul_wide(const MatmulArgs& a) {
    using Unit = WideUnit<T, kRows>;
    LUCE_DYNAMIC_SHARED(memory);  // [kWideSlots][lines] units, [tiles] totals
    LUCE_SHARED(Word4, table_memory, (T::kTableWords + 3) / 4 + 1);
    const auto [part, tile] = find_part(a);
    const int lines = a.waves / a.tiles, wave = uniform(thread_id() / 32), line = wave / a.tiles, own = wave % a.tiles, row = block_id_y() * kRows;
    const int groups = a.x.columns / 32, segments = (groups + kGroups - 1) / kGroups, records = (a.tiles + 1) / 2;
    const int first = tile * a.tiles * 16, first_record = first / kRecordRows, there = (part.outputs + kRecordRows - 1) / kRecordRows - first_record;
    const int output = first + own * 16, unit_at = records * unit_bytes<T>() + Unit::kRowBytes, threads = a.tiles * 32, thread = thread_id() - line * threads;
    const WideSource from{part.weight + static_cast<size_t>(first_record) * static_cast<size_t>(a.x.columns / T::kBlock) * T::kRecord,
                          there < records ? there : records, static_cast<size_t>(row / kTileRows) * static_cast<size_t>(groups) * kTileRows, line, lines};
    const auto slot = [&](int step) { return Unit(memory + (step % kWideSlots * lines + line) * unit_at, records); };
    Float4* totals = reinterpret_cast<Float4*>(memory + kWideSlots * lines * unit_at) + own * kRows * 4;
    for (int i = 0; i + 1 < kWideSlots; i++) fetch_wide<T, kRows>(slot(i), from, a.x, i, thread, threads);
    uint32_t* table = reinterpret_cast<uint32_t*>(table_memory);
    T::fill_table(table, thread_id(), a.waves * 32);
    const bool live = output < part.outputs;
    const int rounds = (segments + lines - 1) / lines, last = (groups - (rounds - 1) * lines * kGroups + kUnitGroups - 1) / kUnitGroups;
    const int steps = (rounds - 1) * 4 + (last < 4 ? last : 4);
    TileChains<1, kRows / 16> c = {};
    for (int step = 0; step < steps; step++) {
        const Unit unit = slot(step);
        const int left = groups - from.unit(step) * kUnitGroups, s = step / 4 * lines + line;
        async_wait<kWideSlots - 2>();
        barrier();  // the step's unit is there for all, and all are done with the slot of the one before
        fetch_wide<T, kRows>(slot(step + kWideSlots - 1), from, a.x, step + kWideSlots - 1, thread, threads);
        if (live && left > 0)
            wide_unit<T, kRows>(c, unit, InGroup{unit.weights + (output / kRecordRows - first_record) * unit_bytes<T>()}, output % kRecordRows,
                                left < kUnitGroups ? left : kUnitGroups, table);
        if (step % 4 != 3 && step + 1 != steps) continue;
        for (int turn = 0; turn < lines; turn++) {
            if (turn == line && live && s < segments) add_wide<kRows>(totals, c, s == 0);
            if (lines > 1) barrier();
        }
        LUCE_UNROLL
        for (int i = 0; i < kRows / 2; i++) c[0][i / 8][i % 8] = {};
    }
    if (live && line == 0) put_wide<kRows>(a, part, row, output, totals);
}

}  // namespace
}  // namespace lucebox::hip
