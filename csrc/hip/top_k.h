// ops/top_k.h: kTopKParts workgroups a row find the best of their part, one the best of these. The 16th best of the work-items' own bests bounds what
// can be among the 16 best of all; where few values reach it, a wave sorts them, else they are found one after the other.
#pragma once
#include "hip/compat.h"
#include "hip/params.h"

namespace lucebox::hip {
namespace {

// A value and its id in one number: the larger one comes first. 0: none; all ones: NaN.
using Rank = uint64_t;
inline constexpr Rank kNotANumber = ~Rank{0};
LUCE_DEVICE Rank rank_of(float x, int id) {
    const uint32_t bits = x == 0 ? 0 : ops::to_bits(x), key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return x != x ? kNotANumber : Rank{key} << 32 | ~static_cast<uint32_t>(id);
}
LUCE_DEVICE int id_of(Rank r) { return static_cast<int>(~static_cast<uint32_t>(r)); }
LUCE_DEVICE Rank larger(Rank a, Rank b) { return a > b ? a : b; }
LUCE_DEVICE Rank from_lane(Rank r, int mask) { return Rank{shfl_xor(static_cast<uint32_t>(r >> 32), mask)} << 32 | shfl_xor(static_cast<uint32_t>(r), mask); }

// A step of a bitonic sort: lanes `stride` apart; the larger goes to the lower lane where bit `size` of the lane is clear.
template <int kStride> LUCE_DEVICE Rank exchange(Rank r, int size) {
    const Rank other = from_lane(r, kStride);
    const bool large = ((lane_id() & kStride) == 0) == ((lane_id() & size) == 0);
    return (other > r) == large ? other : r;
}
// A bitonic sequence of 16 lanes from the largest on.
LUCE_DEVICE Rank merge16(Rank r, int size) { return exchange<1>(exchange<2>(exchange<4>(exchange<8>(r, size), size), size), size); }
LUCE_DEVICE Rank sort32(Rank r) {
    r = exchange<1>(r, 2);
    r = exchange<1>(exchange<2>(r, 4), 4);
    r = exchange<1>(exchange<2>(exchange<4>(r, 8), 8), 8);
    r = merge16(r, 16);
    return merge16(exchange<16>(r, 32), 32);
}

inline constexpr int kTopKThreads = 256, kTopKWaves = kTopKThreads / 32;

// The work-item's ranks of n, with several loads on their way; visit(0) is for nothing.
template <class Read, class Visit> LUCE_DEVICE void visit_own(int n, const Read& read, const Visit& visit) {
    constexpr int kAhead = 8;
    LUCE_ROLLED
    for (int i = thread_id(); i < n; i += kAhead * kTopKThreads) {
        Rank r[kAhead];
        LUCE_UNROLL
        for (int j = 0; j < kAhead; j++) r[j] = i + j * kTopKThreads < n ? read(i + j * kTopKThreads) : 0;
        LUCE_UNROLL
        for (int j = 0; j < kAhead; j++) visit(r[j]);
    }
}

// The slow way, of use where values of few work-items are the best of all. lists: [kTopKWaves]
template <class Read, class Write> LUCE_DEVICE void top_k_in_turn(int n, int k, const Read& read, const Write& write, Rank* lists) {
    Rank last = kNotANumber, own = 0;
    for (int j = 0; j < k; j++) {
        Rank best = 0;
        visit_own(n, read, [&](Rank r) { best = r < last ? larger(best, r) : best; });
        best = wave_join(best, [](Rank v, int d) { return larger(v, from_lane(v, d)); });
        barrier();  // the last result has been read
        if (lane_id() == 0) lists[thread_id() / 32] = best;
        barrier();
        last = lists[0];
        for (int w = 1; w < kTopKWaves; w++) last = larger(last, lists[w]);
        own = thread_id() == j ? last : own;
    }
    if (thread_id() < k) write(thread_id(), own);
}

// write(j, rank) for the best k of n ranks, in order, or for kNotANumber k times if that is among them.
template <class Read, class Write> LUCE_DEVICE void top_k(int n, int k, const Read& read, const Write& write) {
    LUCE_SHARED(Rank, lists, kTopKWaves * ops::kCandidates);  // of each wave; later what reaches the bound
    LUCE_SHARED(Rank, ends, 2);                               // the best of all, and the bound
    LUCE_SHARED(uint32_t, count, 1);
    const int lane = lane_id(), wave = thread_id() / 32, place = lane % ops::kCandidates;
    Rank own = 0;
    visit_own(n, read, [&](Rank r) { own = larger(own, r); });
    const Rank sorted = sort32(own);
    if (lane == place) lists[wave * ops::kCandidates + lane] = sorted;
    if (thread_id() == 0) *count = 0;
    barrier();
    if (wave == 0) {
        Rank top = lists[place];
        for (int w = 1; w < kTopKWaves; w++) top = merge16(larger(top, lists[w * ops::kCandidates + ops::kCandidates - 1 - place]), 32);
        if (lane == 0) ends[0] = top;
        if (lane == ops::kCandidates - 1) ends[1] = top;
    }
    barrier();
    const Rank best = ends[0], bound = ends[1];
    if (best == kNotANumber) {
        if (thread_id() < k) write(thread_id(), best);
        return;
    }
    if (own && own >= bound)
        visit_own(n, read, [&](Rank r) {
            if (!r || r < bound) return;
            const uint32_t at = atomic_next(count);
            if (at < 32) lists[at] = r;
        });
    barrier();
    if (*count > 32) return top_k_in_turn(n, k, read, write, lists);
    if (wave > 0) return;
    const Rank all = sort32(static_cast<uint32_t>(lane) < *count ? lists[lane] : 0);
    if (lane < k) write(lane, all);
}

// What a logit counts as.
template <bool kCap> LUCE_DEVICE float candidate(const TopKArgs& a, int row, int id) {
    const float x = a.logits[static_cast<size_t>(row) * static_cast<size_t>(a.vocab) + static_cast<size_t>(id)] * a.multiplier;
    return kCap ? a.softcap * ops::tanh(x / a.softcap) : x;
}

// Grid x: parts of the vocabulary, y: rows. Where a part holds fewer than k, one that loses against all stands for the others.
template <bool kCap> LUCE_DEVICE void top_k_part(const TopKArgs& a) {
    const int row = block_id_y(), each = (a.vocab + kTopKParts - 1) / kTopKParts, first = block_id() * each;
    const int n = first + each < a.vocab ? each : a.vocab - first;
    Best* out = a.parts + (row * kTopKParts + block_id()) * ops::kCandidates;
    top_k(
        n, a.k, [&](int i) { return rank_of(candidate<kCap>(a, row, first + i), first + i); },
        [&](int j, Rank r) {
            if (r == kNotANumber) out[j] = {0, -1};
            else if (r == 0) out[j] = {ops::from_bits(0xff800000u), 0x7fffffff};
            else out[j] = {candidate<kCap>(a, row, id_of(r)), id_of(r)};
        });
}
LUCE_DEVICE void top_k_parts(const TopKArgs& a) { a.softcap != 0 ? top_k_part<true>(a) : top_k_part<false>(a); }

LUCE_DEVICE void top_k_join(const TopKArgs& a) {
    const int row = block_id();
    const Best* parts = a.parts + static_cast<size_t>(row) * kTopKParts * ops::kCandidates;
    int32_t* id = a.id + row * ops::kCandidates;
    if (thread_id() >= a.k && thread_id() < ops::kCandidates) id[thread_id()] = -1;
    top_k(
        kTopKParts * ops::kCandidates, a.k,
        [&](int i) {
            if (i % ops::kCandidates >= a.k) return Rank{0};
            const Best b = parts[i];
            return b.id < 0 ? kNotANumber : rank_of(b.value, b.id);
        },
        [&](int j, Rank r) {
            const bool number = r != kNotANumber;
            id[j] = number ? id_of(r) : -1;
            a.value[row * ops::kCandidates + j] = !number ? ops::quiet_nan() : a.softcap != 0 ? candidate<true>(a, row, id_of(r)) : candidate<false>(a, row, id_of(r));
        });
}

}  // namespace
}  // namespace lucebox::hip
