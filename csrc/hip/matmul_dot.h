// The product for 1, 2 or 4 rows (matmul.h): a lane owns an output, activations are broadcast from workgroup memory.
#pragma once
#include "hip/matmul.h"

namespace lucebox::hip {
namespace {

// One or two rows of a type with 16 levels: levels are picked in the nibbles' own order, and activations are staged in it.
template <class T, int kRows> LUCE_DEVICE constexpr bool in_nibble_order() { return kSplitLevels && T::kLevels && kRows <= 2; }

// A row's segment in its wave's memory: [group][rows] of each kind.
template <int kRows> struct Staged {
    uint8_t* at;
    LUCE_DEVICE_MEMBER Word4* q(int group, int row) const { return reinterpret_cast<Word4*>(at + (group * kRows + row) * 32); }
    LUCE_DEVICE_MEMBER float* d() const { return reinterpret_cast<float*>(at + kGroups * kRows * 32); }
    LUCE_DEVICE_MEMBER float* sums() const { return d() + kGroups * kRows; }
};
inline constexpr int kStagedRow = kGroups * (32 + 4 + 4);  // bytes

template <class T, int kRows> LUCE_DEVICE void stage(const Staged<kRows>& s, const Rows& x, int row, int first_group, int groups) {
    const size_t base = (static_cast<size_t>(row / kTileRows) * static_cast<size_t>(x.columns / 32) + static_cast<size_t>(first_group)) * kTileRows;
    const int r = row % kTileRows, lane = lane_id();
    LUCE_UNROLL
    for (int j = 0; j < 2 * kRows; j++) {
        const int i = j * 32 + lane, g = i / (2 * kRows), in = i % (2 * kRows);
        if (g >= groups) continue;
        Word4 v = reinterpret_cast<const Word4*>(x.q + (base + static_cast<size_t>(g * kTileRows + r)) * 32)[in];
        if constexpr (in_nibble_order<T, kRows>())
            v = {perm(v.y, v.x, 0x05010400u), perm(v.y, v.x, 0x07030602u), perm(v.w, v.z, 0x05010400u), perm(v.w, v.z, 0x07030602u)};
        reinterpret_cast<Word4*>(s.at)[i] = v;
    }
    LUCE_UNROLL
    for (int j = 0; j < kRows; j++) {
        const int i = j * 32 + lane, g = i / kRows;
        if (g >= groups) continue;
        const size_t at = base + static_cast<size_t>(g * kTileRows), in = static_cast<size_t>(r + i % kRows);
        s.d()[i] = x.d[at + in];
        if constexpr (T::kMin) s.sums()[i] = x.sums[2 * at + (T::kHalves ? kTileRows : 0) + in];
    }
}

// A lane's weights of a unit.
template <class T> struct DotUnit {
    typename T::template Raw<4> raw[kUnitGroups];
    typename T::Scales scales[T::kBlock == 256 ? 1 : kUnitGroups];
};
template <class T, class Bytes> LUCE_DEVICE void load_unit(DotUnit<T>& u, Bytes unit) {
    const int row = lane_id();
    if constexpr (T::kBlock == 256) u.scales[0].load(unit, row);
    LUCE_UNROLL
    for (int g = 0; g < kUnitGroups; g++) {
        T::template load<4>(u.raw[g], record_of<T>(unit, g), row, in_block<T>(g), 0);
        if constexpr (T::kBlock == 32) u.scales[g].load(record_of<T>(unit, g), row);
    }
}

// P of the contract.
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
template <class T> LUCE_DEVICE int dot_group_levels(const typename T::template Raw<4>& raw, const Word4& a, const Word4& b, const typename T::Scales& s, int g,
                                 const uint32_t* table) {
    const SplitLevels levels = lane_levels(table);
    const uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    int low = 0, high = 0;
    LUCE_UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t l[2], h[2];
        pick_levels(raw.q[i], levels, l, h);
        low = dot4(l[1], x[2 * i + 1], dot4(l[0], x[2 * i], low)), high = dot4(h[1], x[2 * i + 1], dot4(h[0], x[2 * i], high));
    }
    return T::kBlock == 32 ? low + high : mad24(s.scale(g, 0), low + high, 0);
}
// Group `at` of the segment, g of its block.
template <class T, int kRows>
LUCE_DEVICE void dot_rows(Chain (&c)[kRows], const typename T::template Raw<4>& raw, const typename T::Scales& s, int g, const Staged<kRows>& x, int at,
                          const uint32_t* table) {
    uint32_t lo[4], hi[4];
    if constexpr (!in_nibble_order<T, kRows>()) T::template decode<4>(raw, g, 0, lo, hi, table);
    LUCE_UNROLL
    for (int m = 0; m < kRows; m++) {
        if (kRows > 2 && m > 0) schedule_fence();
        const Word4* q = x.q(at, m);
        const float sums = T::kMin ? x.sums()[at * kRows + m] : 0.0f;
        int p;
        if constexpr (in_nibble_order<T, kRows>()) p = dot_group_levels<T>(raw, q[0], q[1], s, g, table);
        else p = dot_group<T>(lo, hi, q[0], q[1], s, g);
        add_group<T>(c[m], s, g, static_cast<float>(p), x.d()[at * kRows + m], sums, ops::to_bits(sums));
    }
}

// A unit's groups from group `first` of the segment on.
template <class T, int kRows, class Bytes>
LUCE_DEVICE void dot_unit(Chain (&c)[kRows], Bytes unit, const Staged<kRows>& x, int first, const uint32_t* table) {
    DotUnit<T> u;
    load_unit<T>(u, unit);
    LUCE_UNROLL
    for (int g = 0; g < kUnitGroups; g++) {
        schedule_fence();
        dot_rows<T, kRows>(c, u.raw[g], u.scales[T::kBlock == 256 ? 0 : g], in_block<T>(g), x, first + g, table);
    }
    LUCE_UNROLL
    for (int m = 0; m < kRows; m++) end_block<T>(c[m], u.scales[0]);
}

template <class T, int kRows>
LUCE_DEVICE void dot_segment(Chain (&c)[kRows], Ring<T>& ring, int s, int groups, const Staged<kRows>& x, const uint32_t* table) {
    const int whole = groups / kUnitGroups;
    LUCE_ROLLED
    for (int b = 0; b < whole; b++) {
        if constexpr (kAsyncCopies) {
            dot_unit<T, kRows>(c, ring.wait(), x, b * kUnitGroups, table);
            ring.release();
        } else {
            const size_t at = static_cast<size_t>(uniform(s * (kGroups / kUnitGroups) + b));
            dot_unit<T, kRows>(c, ring.records + at * unit_bytes<T>(), x, b * kUnitGroups, table);
        }
    }
    if constexpr (T::kBlock == 32) {  // K need not be a multiple of 256
        LUCE_ROLLED
        for (int g = whole * kUnitGroups; g < groups; g++) {
            const uint8_t* record = ring.records + static_cast<size_t>(s * kGroups + g) * T::kRecord;
            typename T::template Raw<4> raw;
            typename T::Scales scales;
            T::template load<4>(raw, record, lane_id(), 0, 0), scales.load(record, lane_id());
            dot_rows<T, kRows>(c, raw, scales, 0, x, g, table);
        }
    }
}

template <class T, int kRows> LUCE_DEVICE void matmul_dot(const MatmulArgs& a) {
    constexpr int kWave = kRows * kStagedRow + (kAsyncCopies ? kRingSlots * unit_bytes<T>() : 0);
    LUCE_DYNAMIC_SHARED(memory);  // [waves][kWave]: rows, ring; [slots][kRows * 32] sums, [kRows * 32] totals
    LUCE_SHARED(Word4, table_memory, (T::kTableWords + 3) / 4 + 1);
    const auto [part, tile] = find_part(a);
    const int lane = lane_id(), wave = uniform(thread_id() / 32), row = block_id_y() * kRows;
    const int k = a.x.columns;
    const Cut cut = cut_of(a);
    const Staged<kRows> x{memory + wave * kWave};
    float* sums = reinterpret_cast<float*>(memory + a.waves * kWave);
    float* totals = sums + a.slots * kRows * 32;
    Ring<T> ring{x.at + kRows * kStagedRow, part.weight + static_cast<size_t>(tile) * static_cast<size_t>(k / T::kBlock) * T::kRecord,
                 walk_of(cut, wave, a.waves, k), 0};
    if constexpr (kAsyncCopies) ring.start();
    uint32_t* table = reinterpret_cast<uint32_t*>(table_memory);
    T::fill_table(table, thread_id(), a.waves * 32);
    if (T::kTableWords > 0) barrier();
    for (int s0 = 0; s0 < cut.count; s0 += a.slots) {
        const int slots = cut.count - s0 < a.slots ? cut.count - s0 : a.slots;
        for (int slot = wave; slot < slots; slot += a.waves) {
            const int s = cut.first + s0 + slot, left = k / 32 - s * kGroups, groups = left < kGroups ? left : kGroups;
            Chain c[kRows] = {};
            stage<T, kRows>(x, a.x, row, s * kGroups, groups);
            wave_barrier();
            dot_segment<T, kRows>(c, ring, s, groups, x, table);
            for (int m = 0; m < kRows; m++) sums[(slot * kRows + m) * 32 + lane] = c[m].acc;
            wave_barrier();
        }
        barrier();
        finish_slots<kRows * 32>(a, cut, s0, slots, sums, kRows * 32, totals, [](int i) { return i; },
                                 [&](int i, float total) { put(a, part, row + i / 32, tile * 32 + i % 32, total); });
        if (s0 + slots < cut.count) barrier();
    }
}

}  // namespace
}  // namespace lucebox::hip
