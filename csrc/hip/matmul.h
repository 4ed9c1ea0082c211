// ops/matmul.h for quantised weights, two ways with the same bits. A workgroup takes a tile of outputs, a wave segments of 1,024 columns in turn;
// segment sums go through workgroup memory and are added in order.
//   matmul_dot.h   32 outputs, kRows (1, 2, 4) rows: a lane owns an output, dot4, activations staged in workgroup memory
//   matmul_tile.h  16 outputs, kRows (8, 16, 32, 64) rows: matrix instructions on fragments (arch/maps.h)
// Grid x: tiles of the parts, y: row groups. Rows beyond a.rows are computed from what lies in the padding and not stored.
// A wave walks its columns by units of 256: a block, or eight blocks of 32. Where kAsyncCopies and up to 16 rows, units go through a ring of the
// wave's in workgroup memory, so that the next are on their way whatever the wave computes; elsewhere a unit is loaded whole, then used.
#pragma once
#include "hip/matmul_types.h"

namespace lucebox::hip {
namespace {

inline constexpr int kGroups = 32;    // 32s in a segment
inline constexpr int kUnitGroups = 8;  // and in a unit

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
template <class T> LUCE_DEVICE void add_group(Chain& c, const typename T::Scales& s, int g, float p, float d, float dsum, uint32_t sums) {
    if constexpr (T::kBlock == 32) {
        c.acc = ops::fma(s.d() * d, p, c.acc);
        if constexpr (T::kMin) c.acc = ops::fma(s.dmin(), dsum, c.acc);
    } else {
        c.f = ops::fma(d, p, c.f);
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

template <class T> LUCE_DEVICE constexpr int unit_bytes() { return T::kBlock == 256 ? T::kRecord : kUnitGroups * T::kRecord; }
template <class T, class Bytes> LUCE_DEVICE Bytes record_of(Bytes unit, int g) { return T::kBlock == 256 ? unit : unit + g * T::kRecord; }
template <class T> LUCE_DEVICE int in_block(int g) { return T::kBlock == 256 ? g : 0; }

// A wave's units in order: those of segment s, then those of segment s + waves.
struct Walk {
    int s, b, waves, units;  // units: whole ones of a row of records
    LUCE_DEVICE_MEMBER int index() const { return s * (kGroups / kUnitGroups) + b; }
    LUCE_DEVICE_MEMBER bool done() const { return index() >= units; }
    LUCE_DEVICE_MEMBER void advance() {
        b++;
        if (b == kGroups / kUnitGroups) s += waves, b = 0;
    }
};
// The wave's next units in workgroup memory, each in its slot; a lane's copies are its own, so that only the wave must meet.
inline constexpr int kRingSlots = 2;
template <class T> struct Ring {
    uint8_t* at;
    const uint8_t* records;
    Walk ahead;  // the next to be fetched
    int slot;
    LUCE_DEVICE_MEMBER void fetch() {
        constexpr int kChunks = unit_bytes<T>() / 16;
        static_assert(unit_bytes<T>() % 16 == 0, "records are copied by 16 bytes");
        if (!ahead.done()) {
            const uint8_t* from = records + static_cast<size_t>(ahead.index()) * unit_bytes<T>() + lane_id() * 16;
            uint8_t* to = at + slot * unit_bytes<T>() + lane_id() * 16;
            LUCE_UNROLL
            for (int i = 0; i < kChunks / 32; i++) async_copy16(to + i * 512, from + i * 512);
            if (lane_id() < kChunks % 32) async_copy16(to + kChunks / 32 * 512, from + kChunks / 32 * 512);
        }
        async_commit();
        ahead.advance();
        slot = slot + 1 == kRingSlots ? 0 : slot + 1;
    }
    LUCE_DEVICE_MEMBER void start() {
        for (int i = 0; i < kRingSlots; i++) fetch();
    }
    // The oldest unit, there for all lanes.
    LUCE_DEVICE_MEMBER InGroup wait() const {
        async_wait<kRingSlots - 1>();
        wave_barrier();
        return {at + slot * unit_bytes<T>()};
    }
    // It is done with: its slot takes another.
    LUCE_DEVICE_MEMBER void release() {
        wave_barrier();
        fetch();
    }
};

// A workgroup's segments of its tile: all, or its share of them.
struct Cut {
    int first, count, segments;
};
LUCE_DEVICE Cut cut_of(const MatmulArgs& a) {
    const int segments = (a.x.columns + ops::kSegment - 1) / ops::kSegment, first = block_id_z() * segments / a.splits;
    return {first, (block_id_z() + 1) * segments / a.splits - first, segments};
}

LUCE_DEVICE Walk walk_of(const Cut& cut, int wave, int waves, int k) {
    const int end = (cut.first + cut.count) * (kGroups / kUnitGroups), units = k / 256;
    return {cut.first + wave, 0, waves, end < units ? end : units};
}

// Sums of `n` slots, in order, onto what the segments before them gave.
LUCE_DEVICE float add_slots(const float* sums, int stride, int n, bool first, float total) {
    total = first ? sums[0] : total + sums[0];
    for (int s = 1; s < n; s++) total = total + sums[s * stride];
    return total;
}
// The workgroup's sums, kValues a segment, go where all of its tile find them; who comes last gets them all, the others null. place: of a value in
// a slot of `stride` floats.
template <int kValues, class Place> LUCE_DEVICE const float* join_splits(const MatmulArgs& a, const Cut& cut, const float* sums, int stride, const Place& place) {
    LUCE_SHARED(uint32_t, last, 1);
    const int tile = block_id_y() * a.blocks + block_id();
    float* all = a.partial + static_cast<size_t>(tile) * static_cast<size_t>(cut.segments) * kValues;
    for (int i = thread_id(); i < cut.count * kValues; i += a.waves * 32) all[cut.first * kValues + i] = sums[i / kValues * stride + place(i % kValues)];
    device_fence();
    barrier();
    if (thread_id() == 0) {
        last[0] = atomic_next(a.arrived + tile) + 1 == static_cast<uint32_t>(a.splits);
        if (last[0]) a.arrived[tile] = 0;  // for the next launch
    }
    barrier();
    device_fence();
    return last[0] ? all : nullptr;
}
// Adds up what the slots hold, the workgroup's segments s0 .. of its cut, and stores the tile with the last of them. totals: [kValues] between rounds.
template <int kValues, class Place, class Put>
LUCE_DEVICE void finish_slots(const MatmulArgs& a, const Cut& cut, int s0, int n, const float* sums, int stride, float* totals, const Place& place,
                              const Put& put_value) {
    const bool first = s0 == 0, last = s0 + n == cut.count;
    if (a.splits > 1) {
        const float* all = join_splits<kValues>(a, cut, sums, stride, place);
        if (all)
            for (int i = thread_id(); i < kValues; i += a.waves * 32) put_value(i, add_slots(all + i, kValues, cut.segments, true, 0));
        return;
    }
    for (int i = thread_id(); i < kValues; i += a.waves * 32) {
        const float total = add_slots(sums + place(i), stride, n, first, first ? 0.0f : totals[i]);
        if (last) put_value(i, total);
        else totals[i] = total;
    }
}

}  // namespace
}  // namespace lucebox::hip
