// ops/swiglu.h: a lane takes four values, a workgroup 1,024 of a row (grid x: cuts of a row, y: rows).
#pragma once
#include "hip/quantize.h"

namespace lucebox::hip {
namespace {

LUCE_DEVICE void swiglu(const SwigluArgs& a) {
    const int row = block_id_y(), at = (block_id() * 256 + thread_id()) * 4;
    const bool live = at < a.ff;
    const size_t from = static_cast<size_t>(row) * static_cast<size_t>(a.ff) + static_cast<size_t>(at);
    float g[4] = {}, u[4] = {};
    if (live) {
        load4(g, a.gate + from), load4(u, a.up + from);
        for (int i = 0; i < 4; i++) g[i] = ops::silu(g[i]) * u[i];
        store4(a.y.x + from, g);
    }
    quantize_store(a.y, row, at / 32, g, live);
}

}  // namespace
}  // namespace lucebox::hip
