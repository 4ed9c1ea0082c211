// Layouts of the K types and IQ4_XS: eight planes of nibbles (or of 2 bits), planes of the higher bits, then the scales.
#pragma once
#include "hip/matmul_nibbles.h"

namespace lucebox::hip {
namespace {

struct IQ4_XS : LevelsTable<IQ4_XS> {
    static constexpr int kBlock = 256, kRecord = 4096 + 256;
    static constexpr bool kMin = false, kHalves = false, kLevels = true;
    struct Scales {  // d, scales_h, scales_l
        uint32_t v[2];
        template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) { stream_load(v, record + 4096 + 8 * row); }
        LUCE_DEVICE_MEMBER float d() const { return half_to_float(v[0] & 0xffffu); }
        LUCE_DEVICE_MEMBER int scale(int g, int) const {
            return static_cast<int>(((v[1] >> (4 * g)) & 15u) | ((v[0] >> (16 + 2 * g)) & 3u) << 4) - 32;
        }
        LUCE_DEVICE_MEMBER float dmin() const { return 0; }
        LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
    };
    LUCE_DEVICE constexpr Levels levels() { return levels_iq4(); }
    template <int N> using Raw = NibbleRaw<N>;
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int chunk) {
        load_nibbles(raw.q, record + 512 * g, row, chunk);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        decode_levels(raw.q, levels(), lo, hi);
    }
};

// d, dmin and the 12 bytes of 6-bit scales and minimums of Q4_K and Q5_K, unpacked once a block.
template <int kAt> struct SixBitScales {
    uint32_t dm, scales[2], mins[2];
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) {
        uint32_t v[4];
        stream_load(v, record + kAt + 16 * row);
        dm = v[0];
        scales[0] = v[1] & 0x3f3f3f3fu, mins[0] = v[2] & 0x3f3f3f3fu;
        scales[1] = (v[3] & 0x0f0f0f0fu) | ((v[1] >> 2) & 0x30303030u), mins[1] = ((v[3] >> 4) & 0x0f0f0f0fu) | ((v[2] >> 2) & 0x30303030u);
    }
    LUCE_DEVICE_MEMBER float d() const { return half_to_float(dm & 0xffffu); }
    LUCE_DEVICE_MEMBER float dmin() const { return half_to_float(dm >> 16); }
    LUCE_DEVICE_MEMBER int scale(int g, int) const { return static_cast<int>((scales[g >> 2] >> (8 * (g & 3))) & 63u); }
    LUCE_DEVICE_MEMBER int min(int g, int) const { return static_cast<int>((mins[g >> 2] >> (8 * (g & 3))) & 63u); }
};
struct Q4_K : NoTable {
    static constexpr int kBlock = 256, kRecord = 4096 + 512;
    static constexpr bool kMin = true, kHalves = false;
    using Scales = SixBitScales<4096>;
    template <int N> using Raw = NibbleRaw<N>;
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int chunk) {
        load_nibbles(raw.q, record + 512 * g, row, chunk);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = raw.q[i] & 0x0f0f0f0fu, hi[i] = (raw.q[i] >> 4) & 0x0f0f0f0fu;
    }
};
struct Q5_K : NoTable {
    static constexpr int kBlock = 256, kRecord = 4096 + 1024 + 512;
    static constexpr bool kMin = true, kHalves = false;
    using Scales = SixBitScales<5120>;
    template <int N> using Raw = FiveRaw<N>;
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int chunk) {
        load_nibbles(raw.q, record + 512 * g, row, chunk);
        raw.fifth = load_u32(record + 4096 + 128 * g + 4 * row);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        join_fifth(raw, chunk, lo, hi);
    }
};

// Sixteen int8 scales and an f16.
template <int kAt> struct ByteScales {
    uint32_t s[4], h;
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) {
        stream_load(s, record + kAt + 16 * row);
        h = load_u16(record + kAt + 512 + 2 * row);
    }
    LUCE_DEVICE_MEMBER float d() const { return half_to_float(h); }
    LUCE_DEVICE_MEMBER int scale(int g, int half) const { return signed_byte(s[g >> 1], 2 * (g & 1) + half); }
    LUCE_DEVICE_MEMBER float dmin() const { return 0; }
    LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
};
struct Q6_K : NoTable {
    static constexpr int kBlock = 256, kRecord = 4096 + 2048 + 512 + 64;
    static constexpr bool kMin = false, kHalves = true;
    using Scales = ByteScales<6144>;
    template <int N> struct Raw {
        uint32_t q[N], high[2];
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int chunk) {
        load_nibbles(raw.q, record + 512 * g, row, chunk);
        stream_load(raw.high, record + 4096 + 256 * g + 8 * row);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) {
            lo[i] = minus((raw.q[i] & 0x0f0f0f0fu) | pair_of_quad(raw.high[0], chunk + i) << 4, 32);
            hi[i] = minus(((raw.q[i] >> 4) & 0x0f0f0f0fu) | pair_of_quad(raw.high[1], chunk + i) << 4, 32);
        }
    }
};
struct Q3_K : NoTable {
    static constexpr int kBlock = 256, kRecord = 2048 + 1024 + 512 + 64;
    static constexpr bool kMin = false, kHalves = true;
    using Scales = ByteScales<3072>;
    template <int N> struct Raw {
        uint32_t q[2], third;
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        stream_load(raw.q, record + 256 * g + 8 * row);
        raw.third = load_u32(record + 2048 + 128 * g + 4 * row);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) {
            lo[i] = minus(pair_of_quad(raw.q[0], chunk + i) | bit_of_quad(raw.third, chunk + i) << 2, 4);
            hi[i] = minus(pair_of_quad(raw.q[1], chunk + i) | bit_of_quad(raw.third, chunk + i + 4) << 2, 4);
        }
    }
};
struct Q2_K : NoTable {
    static constexpr int kBlock = 256, kRecord = 2048 + 512 + 128;
    static constexpr bool kMin = true, kHalves = true;
    struct Scales {  // a byte a 16: scale, minimum; then d, dmin
        uint32_t s[4], dm;
        template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) {
            stream_load(s, record + 2048 + 16 * row);
            dm = load_u32(record + 2560 + 4 * row);
        }
        LUCE_DEVICE_MEMBER float d() const { return half_to_float(dm & 0xffffu); }
        LUCE_DEVICE_MEMBER float dmin() const { return half_to_float(dm >> 16); }
        LUCE_DEVICE_MEMBER int scale(int g, int half) const { return static_cast<int>((s[g >> 1] >> (16 * (g & 1) + 8 * half)) & 15u); }
        LUCE_DEVICE_MEMBER int min(int g, int half) const { return static_cast<int>((s[g >> 1] >> (16 * (g & 1) + 8 * half + 4)) & 15u); }
    };
    template <int N> struct Raw {
        uint32_t q[2];
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) { stream_load(raw.q, record + 256 * g + 8 * row); }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = pair_of_quad(raw.q[0], chunk + i), hi[i] = pair_of_quad(raw.q[1], chunk + i);
    }
};

}  // namespace
}  // namespace lucebox::hip
