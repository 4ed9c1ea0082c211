// How ops are cut for a device: shape in, launch out. Pure functions.
#pragma once
#include "hip/params.h"
#include "hip/runtime/device.h"
#include "ops/kv.h"
#include <algorithm>
#include <cstdint>

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
    uint32_t shared_bytes;
};
// unit_bytes: of 32 outputs and 256 columns (runtime/pack.h).
inline MatmulPlan plan_matmul(Arch arch, int shared_limit, int rows, int columns, int unit_bytes) {
    MatmulPlan p{};
    p.rows = rows <= 4 ? row_bucket(rows) : std::min(64, std::max(8, row_bucket(rows)));
    if (arch == Arch::kGfx9 && rows <= 8) p.rows = std::min(p.rows, 4);  // no matrix unit: dot4 reads weights twice rather than shuffle
    const bool dot = p.rows <= 4, ring = arch == Arch::kNvidia && p.rows <= 16;
    p.outputs = dot || ring ? 32 : 16;
    p.row_groups = ceil_div(rows, p.rows);
    const int wave = (dot ? p.rows * 32 * 40 : 0) + (ring ? 2 * unit_bytes : 0);
    const int slot = 4 * (dot ? p.rows * 32 : ceil_div(p.rows, 16) * 16 * (p.outputs + 1)), totals = 4 * p.rows * p.outputs;
    const int most = std::clamp((shared_limit - 4096 - totals) / (wave + slot), 1, kMatmulWaves);  // 4 KB: the kernels' tables
    const int segments = ceil_div(columns, ops::kSegment), rounds = ceil_div(segments, most);
    p.waves = ceil_div(segments, rounds);  // 5 for 5,120 columns, 6 for 6,144 and 17,408: the waves divide the segments
    p.slots = p.waves * std::clamp(std::min(24 * 1024, shared_limit - 4096 - totals - p.waves * wave) / (slot * p.waves), 1, rounds);
    p.shared_bytes = static_cast<uint32_t>(p.waves * wave + p.slots * slot + totals);
    return p;
}

// Keys of a part, and parts. Partial results are bounded by kRowParts rows times parts.
inline constexpr int kRowParts = 512, kAllKeys = 1 << 30;
struct AttentionPlan {
    int part_keys, parts;
};
inline AttentionPlan plan_attention(int rows, int context) {
    for (int keys : {256, 4096})
        if (rows * ceil_div(context, keys) <= kRowParts) return {keys, ceil_div(context, keys)};
    return {kAllKeys, 1};
}

// Where tile products take the place of a wave a query head.
inline bool tiled_attention(Arch arch, const ops::KvLayout& layout) {
    return arch != Arch::kGfx9 && layout.form == ops::KvForm::Q8_0 && (layout.head_dim == 128 || layout.head_dim == 256);
}

}  // namespace lucebox::hip
