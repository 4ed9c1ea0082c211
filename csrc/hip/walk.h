// ops/walk.h: a wave a span, row after row.
#pragma once
#include "hip/argmax.h"

namespace lucebox::hip {
namespace {

// Whether the wave's lanes all say so.
LUCE_DEVICE bool wave_all(bool yes) {
    return wave_join(yes ? 1 : 0, [](int v, int d) { return v & static_cast<int>(shfl_xor(static_cast<uint32_t>(v), d)); }) != 0;
}

// Grid x: spans; 32 threads.
LUCE_DEVICE void walk(const WalkArgs& a) {
    const int s = block_id(), lane = lane_id(), b = lane % ops::kCandidates;
    if (s >= a.draft->spans) return;
    const ops::Span &draft = a.draft->span[s], &verify = a.verify->span[s];
    int before = 0;
    bool usable = true;
    for (int r = 1; r < draft.rows; r++) {
        const int at = draft.first + r - s - 1;  // every span before has one row that is not wanted
        const int32_t* id = a.id + at * ops::kCandidates;
        const float* edge = a.edge + at * ops::kCandidates * ops::kCandidates;
        bool numbers = b >= a.k || id[b] >= 0;
        for (int p = lane / ops::kCandidates; b < a.k && p < (r == 1 ? 1 : a.k); p += 2) {
            const float x = edge[p * ops::kCandidates + b];
            numbers = numbers && x - x == 0.0f;
        }
        usable = usable && wave_all(numbers);
        const Best best = wave_best(b < a.k ? Best{edge[before * ops::kCandidates + b], b} : Best{ops::from_bits(0xff800000u), 0x7fffffff});
        if (usable) before = best.id;
        if (lane != 0) continue;
        a.path[at] = usable ? id[before] : -1;
        if (r < verify.rows) a.verify->token[verify.first + r] = usable ? id[before] : 0;
    }
}

}  // namespace
}  // namespace lucebox::hip
