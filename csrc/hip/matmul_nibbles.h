// Layouts of 32 values: Q4_0, Q4_1, IQ4_NL, MXFP4 (512 bytes of nibbles, then scales), Q5_0, Q5_1 (a plane of fifth bits between), Q8_0.
#pragma once
#include "hip/matmul_types.h"

namespace lucebox::hip {
namespace {

template <class Table> struct NibbleLayout : Table {
    static constexpr int kBlock = 32;
    static constexpr bool kMin = false, kHalves = false;
    template <int N> using Raw = NibbleRaw<N>;
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int, int chunk) { load_nibbles(raw.q, record, row, chunk); }
};

struct Q4_0 : NibbleLayout<NoTable> {
    static constexpr int kRecord = 512 + 64;
    using Scales = HalfScale<512>;
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = minus(raw.q[i] & 0x0f0f0f0fu, 8), hi[i] = minus((raw.q[i] >> 4) & 0x0f0f0f0fu, 8);
    }
};
struct Q4_1 : NibbleLayout<NoTable> {
    static constexpr int kRecord = 512 + 128;
    static constexpr bool kMin = true;
    using Scales = HalfPair<512>;
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = raw.q[i] & 0x0f0f0f0fu, hi[i] = (raw.q[i] >> 4) & 0x0f0f0f0fu;
    }
};
template <int N> LUCE_DEVICE void decode_levels(const uint32_t (&q)[N], const Levels& levels, uint32_t (&lo)[N], uint32_t (&hi)[N]) {
    for (int i = 0; i < N; i++) lut16(q[i], levels.word, lo[i], hi[i]);
}
LUCE_DEVICE constexpr Levels levels_iq4() { return {{0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u}}; }
struct IQ4_NL : NibbleLayout<LevelsTable<IQ4_NL>> {
    static constexpr int kRecord = 512 + 64;
    static constexpr bool kLevels = true;
    using Scales = HalfScale<512>;
    LUCE_DEVICE constexpr Levels levels() { return levels_iq4(); }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        decode_levels(raw.q, levels(), lo, hi);
    }
};
struct MXFP4 : NibbleLayout<LevelsTable<MXFP4>> {
    static constexpr int kRecord = 512 + 32;
    static constexpr bool kLevels = true;
    struct Scales : HalfScale<512> {
        template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) { h = pointer(record)[512 + row]; }
        // 2^(e - 128): the levels are doubled; the two smallest scales are subnormal.
        LUCE_DEVICE_MEMBER float d() const { return ops::from_bits(h < 2 ? 0x00200000u << h : (h - 1) << 23); }
    };
    LUCE_DEVICE constexpr Levels levels() { return {{0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu}}; }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        decode_levels(raw.q, levels(), lo, hi);
    }
};

template <int N> struct FiveRaw {
    uint32_t q[N], fifth;
};
template <int N> LUCE_DEVICE void join_fifth(const FiveRaw<N>& raw, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N]) {
    for (int i = 0; i < N; i++) {
        lo[i] = (raw.q[i] & 0x0f0f0f0fu) | bit_of_quad(raw.fifth, chunk + i) << 4;
        hi[i] = ((raw.q[i] >> 4) & 0x0f0f0f0fu) | bit_of_quad(raw.fifth, chunk + i + 4) << 4;
    }
}
struct FiveLayout : NoTable {
    static constexpr int kBlock = 32;
    static constexpr bool kMin = false, kHalves = false;
    template <int N> using Raw = FiveRaw<N>;
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int, int chunk) {
        load_nibbles(raw.q, record, row, chunk);
        raw.fifth = load_u32(record + 512 + 4 * row);
    }
};
struct Q5_0 : FiveLayout {
    static constexpr int kRecord = 512 + 128 + 64;
    using Scales = HalfScale<640>;
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        join_fifth(raw, chunk, lo, hi);
        for (int i = 0; i < N; i++) lo[i] = minus(lo[i], 16), hi[i] = minus(hi[i], 16);
    }
};
struct Q5_1 : FiveLayout {
    static constexpr int kRecord = 512 + 128 + 128;
    static constexpr bool kMin = true;
    using Scales = HalfPair<640>;
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        join_fifth(raw, chunk, lo, hi);
    }
};

// Two planes of 16 bytes a row: chunks 0, 1 and 2, 3, a chunk's eight bytes its k below 16 and its others.
struct Q8_0 : NoTable {
    static constexpr int kBlock = 32, kRecord = 1024 + 64;
    static constexpr bool kMin = false, kHalves = false;
    using Scales = HalfScale<1024>;
    template <int N> struct Raw {
        uint32_t q[2 * N];
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int, int chunk) {
        if constexpr (N == 4) {
            uint32_t a[4], b[4];
            stream_load(a, record + row * 16), stream_load(b, record + 512 + row * 16);
            for (int i = 0; i < 4; i++) raw.q[i] = a[i], raw.q[4 + i] = b[i];
        } else {
            stream_load(raw.q, record + (chunk >> 1) * 512 + row * 16 + (chunk & 1) * 8);
        }
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = raw.q[2 * i], hi[i] = raw.q[2 * i + 1];
    }
};

}  // namespace
}  // namespace lucebox::hip
