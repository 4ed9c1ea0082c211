// ops/argmax.h: kArgmaxParts workgroups a row find the best of their part, one wave a row the best of these.
#pragma once
#include "hip/compat.h"
#include "hip/params.h"

namespace lucebox::hip {
namespace {

LUCE_DEVICE bool better(const Best a, const Best b) {  // a before b; no NaNs
    return a.value > b.value || (a.value == b.value && static_cast<uint32_t>(a.id) < static_cast<uint32_t>(b.id));
}
// -1 stays: a NaN is found by anyone and kept.
LUCE_DEVICE Best best_of(const Best a, const Best b) {
    const bool take = a.id >= 0 && (b.id < 0 || better(b, a));
    return {take ? b.value : a.value, take ? b.id : a.id};  // by parts: a choice of structs goes through scratch memory
}
LUCE_DEVICE Best wave_best(Best b) {
    return wave_join(b, [](const Best v, int d) {
        return best_of(v, Best{shfl_xor(v.value, d), static_cast<int32_t>(shfl_xor(static_cast<uint32_t>(v.id), d))});
    });
}

// Grid x: parts, y: rows; 256 threads.
LUCE_DEVICE void argmax_parts(const ArgmaxArgs& a) {
    LUCE_SHARED(Best, waves, 8);
    const int row = block_id_y(), each = (a.vocab + kArgmaxParts - 1) / kArgmaxParts, first = block_id() * each;
    const int last = first + each < a.vocab ? first + each : a.vocab;
    const float* logits = a.logits + static_cast<size_t>(row) * static_cast<size_t>(a.vocab);
    Best b = {ops::from_bits(0xff800000u), 0x7fffffff};  // loses against any id
    for (int i = first + thread_id(); i < last; i += 256) {
        const float x = logits[i];
        b = best_of(b, {x, x != x ? -1 : i});
    }
    b = wave_best(b);
    if (lane_id() == 0) waves[thread_id() / 32] = b;
    barrier();
    if (thread_id() != 0) return;
    for (int w = 1; w < 8; w++) b = best_of(b, waves[w]);
    a.parts[row * kArgmaxParts + block_id()] = b;
}

LUCE_DEVICE void argmax_join(const ArgmaxArgs& a) {
    const Best* parts = a.parts + block_id() * kArgmaxParts;
    Best b = parts[lane_id()];
    for (int i = lane_id() + 32; i < kArgmaxParts; i += 32) b = best_of(b, parts[i]);
    b = wave_best(b);
    if (lane_id() == 0) a.id[block_id()] = b.id;
}

}  // namespace
}  // namespace lucebox::hip
