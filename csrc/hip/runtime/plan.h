// How ops are cut for a device: shape in, launch out. Pure functions.
#pragma once
#include "error.h"
#include "hip/params.h"
#include "hip/runtime/device.h"
#include "ops/kv.h"
#include <algorithm>
#include <cstdint>
#include <span>

namespace lucebox::hip {

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Graphs are captured for these numbers of rows.
inline int row_bucket(int rows) {
    int bucket = 1;
    while (bucket < rows) bucket *= 2;
    return bucket;
}

struct MatmulPlan {
    int rows;          // a workgroup's, the kernel's suffix _r<rows>
    int outputs;       // a workgroup's
    int row_groups;    // grid y
    int waves, slots;  // slots: segments whose sums workgroup memory holds
    int splits;        // workgroups that share a tile's segments, grid z
    int tiles;         // matmul_wide.h: of 16 outputs that a workgroup takes; else 0
    int wave_bytes, slot_bytes, totals_bytes;  // of workgroup memory
    uint32_t shared_bytes() const { return static_cast<uint32_t>(waves * wave_bytes + slots * slot_bytes + totals_bytes); }
};
// unit_bytes: of 32 outputs and 256 columns (runtime/pack.h).
inline MatmulPlan plan_matmul(Arch arch, int shared_limit, int rows, int columns, int unit_bytes) {
    MatmulPlan p{};
    p.rows = rows <= 4 ? row_bucket(rows) : std::min(64, std::max(8, row_bucket(rows)));
    if (arch == Arch::kGfx9 && rows <= 8) p.rows = std::min(p.rows, 4);  // no matrix unit: dot4 reads weights twice rather than shuffle
    const bool dot = p.rows <= 4, ring = arch == Arch::kNvidia && p.rows <= 16;
    p.outputs = dot || ring ? 32 : 16;
    p.row_groups = ceil_div(rows, p.rows);
    p.wave_bytes = (dot ? p.rows * 32 * 40 : 0) + (ring ? 2 * unit_bytes : 0);
    p.slot_bytes = 4 * (dot ? p.rows * 32 : ceil_div(p.rows, 16) * 16 * (p.outputs + 1)), p.totals_bytes = 4 * p.rows * p.outputs;
    const int room = shared_limit - 4096 - p.totals_bytes;  // 4 KB: the kernels' tables
    const int segments = ceil_div(columns, ops::kSegment), rounds = ceil_div(segments, std::clamp(room / (p.wave_bytes + p.slot_bytes), 1, kMatmulWaves));
    p.waves = ceil_div(segments, rounds);  // 5 for 5,120 columns, 6 for 6,144 and 17,408: the waves divide the segments
    p.slots = p.waves * std::clamp(std::min(24 * 1024, room - p.waves * p.wave_bytes) / (p.slot_bytes * p.waves), 1, rounds);
    p.splits = 1;
    return p;
}

// Where tiles are fewer than two a multiprocessor and a workgroup's waves would take several segments each, several workgroups share a tile: 160 tiles
// of 17 segments leave 28 of 132 multiprocessors with twice the work. (Tiles of 5 or 6 segments lost up to a third by it.) Their sums meet in
// kPartialBytes of device memory, at kArrivals counters. All are to be resident at once, with 16 waves a multiprocessor.
inline constexpr uint64_t kPartialBytes = 8 << 20;
inline constexpr int kArrivals = 4096, kResidentWaves = 16;
inline MatmulPlan split_matmul(MatmulPlan p, int blocks, int columns, int compute_units) {
    const int segments = ceil_div(columns, ops::kSegment), groups = blocks * p.row_groups;
    const uint64_t bytes = static_cast<uint64_t>(groups) * static_cast<uint64_t>(segments) * static_cast<uint64_t>(4 * p.rows * p.outputs);
    if (segments <= p.waves || blocks >= 2 * compute_units || groups > kArrivals || bytes > kPartialBytes) return p;
    const int each = ceil_div(segments, std::min(segments, ceil_div(7 * compute_units / 2, blocks)));  // segments of a workgroup
    if (each > p.waves || each == segments) return p;
    p.splits = ceil_div(segments, each), p.slots = each;
    const int most = std::clamp(kResidentWaves / ceil_div(groups * p.splits, compute_units), 1, each);
    p.waves = ceil_div(each, ceil_div(each, most));
    return p;
}

// Keys of a part, and parts. Partial results are bounded by kRowParts rows times parts.
inline constexpr int kRowParts = 2048, kAllKeys = 1 << 30;
struct AttentionPlan {
    int part_keys, parts;
};
inline AttentionPlan plan_attention(int rows, int context) {
    for (int keys : {256, 4096})
        if (rows * ceil_div(context, keys) <= kRowParts) return {keys, ceil_div(context, keys)};
    return {kAllKeys, 1};
}

// Where matmul_wide.h takes 32 and 64 rows.
inline bool wide_matmul(Arch arch, int rows) { return arch == Arch::kNvidia && rows > 16; }
// Its tiles a workgroup, and lines of waves that take a tile's segments in turn: the pair that takes the least time on a multiprocessor, one workgroup
// after the other. A step of 256 columns takes so much for each wave of its busiest quarter, and so much for what is copied, in hundredths of a
// microsecond for 64 rows on an H200 (12 x 1 gave 4.0 us, 8 x 1 2.8, 6 x 2 3.9, 4 x 2 2.8). outputs: of the launch's weights.
inline MatmulPlan widen_matmul(MatmulPlan p, int shared_limit, int columns, int unit_bytes, std::span<const int> outputs, int compute_units) {
    constexpr int kRowBytes = 256 + 2 * 32;  // of 256 columns: int8, scales, and the sums that a minimum is multiplied with
    const int segments = ceil_div(columns, ops::kSegment), room = shared_limit - 4096;
    int64_t best = -1;
    for (int tiles = 1; tiles <= kWideWaves; tiles++)
        for (int lines = 1; lines <= std::min(kWideWaves / tiles, segments); lines++) {
            const int step_bytes = lines * ((tiles + 1) / 2 * unit_bytes + p.rows * kRowBytes), totals = tiles * p.rows * 64;
            if (kWideSlots * step_bytes + totals > room) continue;
            int blocks = 0;
            for (int n : outputs) blocks += ceil_div(n, 16 * tiles);
            const int64_t turns = ceil_div(blocks * p.row_groups, compute_units), steps = ceil_div(segments, lines);
            const int64_t cost = turns * steps * (10 + 105 * p.rows / 64 * ceil_div(tiles * lines, 4) + step_bytes / 820);
            if (best >= 0 && cost > best) continue;
            best = cost;
            p.tiles = tiles, p.waves = tiles * lines, p.outputs = 16 * tiles, p.slots = 1;
            p.wave_bytes = 0, p.slot_bytes = kWideSlots * step_bytes, p.totals_bytes = totals;
        }
    LUCE_CHECK(best >= 0, kDevice, "a multiprocessor with ", shared_limit, " bytes of workgroup memory; one tile of ", p.rows, " rows takes more");
    return p;
}

// Where tile products take the place of a wave a query head.
inline bool tiled_attention(Arch arch, const ops::KvLayout& layout) {
    return arch != Arch::kGfx9 && layout.form == ops::KvForm::Q8_0 && (layout.head_dim == 128 || layout.head_dim == 256);
}

// Workgroup memory of its rings (attention_stream.h): eight waves' blocks of 32 keys x 32 dimensions, as many as a head has.
inline uint32_t attention_stream_bytes(Arch arch, int head_dim) { return arch == Arch::kNvidia ? static_cast<uint32_t>(8 * (head_dim / 32) * (1024 + 64)) : 0; }

}  // namespace lucebox::hip
