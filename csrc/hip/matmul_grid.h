// Layouts of the grid types: planes of indices, of signs, of the indices' high bits, then the scales. An IQ3 index is of a quad, an IQ2 or IQ1
// index of two quads. IQ3 grids are expanded into workgroup memory; the others are read as packed rows and expanded at use.
#pragma once
#include "hip/matmul_types.h"

namespace lucebox::hip {
namespace {

#define constexpr LUCE_TABLE  // the tables of csrc/quants, placed on the device
#include "quants/grids.inc"
#undef constexpr

// A plane of one byte a group: eight bytes a row.
template <class Bytes> LUCE_DEVICE uint32_t load_byte(Bytes plane, int row, int g) { return pointer(plane)[8 * row + g]; }

template <int kAt> struct FourBitScales {  // 16 scales of 4 bits; 2 s + 1
    uint32_t s[2], h;
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) {
        stream_load(s, record + kAt + 8 * row);
        h = load_u16(record + kAt + 256 + 2 * row);
    }
    LUCE_DEVICE_MEMBER float d() const { return half_to_float(h) / 8; }
    LUCE_DEVICE_MEMBER int scale(int g, int half) const { return static_cast<int>((s[g >> 2] >> (8 * (g & 3) + 4 * half)) & 15u) * 2 + 1; }
    LUCE_DEVICE_MEMBER float dmin() const { return 0; }
    LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
};

// The scale of a group is in the top four bits of its word of signs.
template <int kAt, int kWordsAt, int kDivisor> struct SignWordScales {
    const uint8_t* words;  // the same loads as the layout's
    uint32_t h;
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) {
        words = pointer(record) + kWordsAt + 4 * row;
        h = load_u16(record + kAt + 2 * row);
    }
    LUCE_DEVICE_MEMBER float d() const { return half_to_float(h) / kDivisor; }
    LUCE_DEVICE_MEMBER int scale(int g, int) const { return static_cast<int>(load_u32(words + 128 * g) >> 28) * 2 + 1; }
    LUCE_DEVICE_MEMBER float dmin() const { return 0; }
    LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
};
// The four signs of a quad from a word of 4 x 7 signs.
LUCE_DEVICE uint32_t seven_signs_of_quad(uint32_t word, int quad) {
    const uint32_t eight = eight_signs((word >> (7 * (quad >> 1))) & 127u);
    return spread_bits((eight >> (4 * (quad & 1))) & 15u);
}

struct IQ3Table {
    static constexpr int kBlock = 256;
    static constexpr bool kMin = false, kHalves = false, kLevels = false;
};
struct IQ3_S : IQ3Table {
    static constexpr int kRecord = 2048 + 1024 + 256 + 256, kTableWords = 512;
    struct Scales {  // f16 d, two bytes nothing, eight scales of 4 bits
        uint32_t v[2];
        template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) { stream_load(v, record + 3328 + 8 * row); }
        LUCE_DEVICE_MEMBER float d() const { return half_to_float(v[0] & 0xffffu); }
        LUCE_DEVICE_MEMBER int scale(int g, int) const { return static_cast<int>((v[1] >> (4 * g)) & 15u) * 2 + 1; }
        LUCE_DEVICE_MEMBER float dmin() const { return 0; }
        LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
    };
    template <int N> struct Raw {
        uint32_t index[2], signs, high;
    };
    LUCE_DEVICE void fill_table(uint32_t* table, int thread, int threads) {
        for (int i = thread; i < kTableWords; i += threads) {
            uint32_t word = 0;
            for (int e = 0; e < 4; e++) word |= (2u * ((static_cast<uint32_t>(kGridIQ3S[i]) >> (3 * e)) & 7u) + 1u) << (8 * e);
            table[i] = word;
        }
    }
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        stream_load(raw.index, record + 256 * g + 8 * row);
        raw.signs = load_u32(record + 2048 + 128 * g + 4 * row);
        raw.high = load_byte(record + 3072, row, g);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t* table) {
        for (int i = 0; i < N; i++) {
            const int c = chunk + i;
            const uint32_t a = ((raw.index[0] >> (8 * c)) & 255u) | ((raw.high >> c) & 1u) << 8;
            const uint32_t b = ((raw.index[1] >> (8 * c)) & 255u) | ((raw.high >> (c + 4)) & 1u) << 8;
            lo[i] = negate(table[a], bit_of_quad(raw.signs, c)), hi[i] = negate(table[b], bit_of_quad(raw.signs, c + 4));
        }
    }
};
struct IQ3_XXS : IQ3Table {
    static constexpr int kRecord = 2048 + 1024 + 64, kTableWords = 256;
    using Scales = SignWordScales<3072, 2048, 4>;
    template <int N> struct Raw {
        uint32_t index[2], signs;
    };
    LUCE_DEVICE void fill_table(uint32_t* table, int thread, int threads) {
        for (int i = thread; i < kTableWords; i += threads) {
            const uint32_t row = kGridIQ3XXS[i];
            const uint32_t codes = (row & 7u) | (row & 0x38u) << 5 | (row & 0x1c0u) << 10 | (row & 0xe00u) << 15;
            table[i] = perm(0x3E342C24u, 0x1C140C04u, codes);
        }
    }
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        stream_load(raw.index, record + 256 * g + 8 * row);
        raw.signs = load_u32(record + 2048 + 128 * g + 4 * row);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t* table) {
        for (int i = 0; i < N; i++) {
            const int c = chunk + i;
            lo[i] = negate(table[(raw.index[0] >> (8 * c)) & 255u], seven_signs_of_quad(raw.signs, c));
            hi[i] = negate(table[(raw.index[1] >> (8 * c)) & 255u], seven_signs_of_quad(raw.signs, c + 4));
        }
    }
};

// The quad of a grid row of two quads.
LUCE_DEVICE uint32_t half_row(uint32_t row, int quad, uint32_t levels) { return perm(0, levels, spread_pairs((row >> (8 * (quad & 1))) & 255u)); }
inline constexpr uint32_t kLevelsIQ2 = 0x002B1908u;

struct IQ2Layout : NoTable {
    static constexpr int kBlock = 256;
    static constexpr bool kMin = false;
};
struct IQ2_XXS : IQ2Layout {
    static constexpr int kRecord = 1024 + 1024 + 64;
    static constexpr bool kHalves = false;
    using Scales = SignWordScales<2048, 1024, 8>;
    template <int N> struct Raw {
        uint32_t index, signs;
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        raw.index = load_u32(record + 128 * g + 4 * row), raw.signs = load_u32(record + 1024 + 128 * g + 4 * row);
    }
    LUCE_DEVICE uint32_t quad(uint32_t index, uint32_t signs, int p) {
        return negate(half_row(kGridIQ2XXS[(index >> (8 * (p >> 1))) & 255u], p, kLevelsIQ2), seven_signs_of_quad(signs, p));
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = quad(raw.index, raw.signs, chunk + i), hi[i] = quad(raw.index, raw.signs, chunk + i + 4);
    }
};
struct IQ2_XS : IQ2Layout {
    static constexpr int kRecord = 2048 + 256 + 64;
    static constexpr bool kHalves = true;
    using Scales = FourBitScales<2048>;
    template <int N> struct Raw {
        uint32_t v[2];  // four of 9 bits index, 7 bits signs
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) { stream_load(raw.v, record + 256 * g + 8 * row); }
    LUCE_DEVICE uint32_t quad(uint32_t word, int p) {
        const uint32_t v = (word >> (8 * (p & 2))) & 0xffffu;
        const uint32_t signs = spread_bits((eight_signs(v >> 9) >> (4 * (p & 1))) & 15u);
        return negate(half_row(kGridIQ2XS[v & 511u], p, kLevelsIQ2), signs);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = quad(raw.v[0], chunk + i), hi[i] = quad(raw.v[1], chunk + i);
    }
};
struct IQ2_S : IQ2Layout {
    static constexpr int kRecord = 1024 + 1024 + 256 + 256 + 64;
    static constexpr bool kHalves = true;
    using Scales = FourBitScales<2304>;
    template <int N> struct Raw {
        uint32_t index, signs, high;
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        raw.index = load_u32(record + 128 * g + 4 * row), raw.signs = load_u32(record + 1024 + 128 * g + 4 * row);
        raw.high = load_byte(record + 2048, row, g);
    }
    LUCE_DEVICE uint32_t quad(uint32_t index, uint32_t signs, uint32_t high, int p) {
        const uint32_t at = ((index >> (8 * (p >> 1))) & 255u) | ((high >> (p & 6)) & 3u) << 8;
        return negate(half_row(kGridIQ2S[at], p, kLevelsIQ2), bit_of_quad(signs, p));
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) {
            lo[i] = quad(raw.index, raw.signs, raw.high, chunk + i), hi[i] = quad(raw.index, raw.signs, raw.high, chunk + i + 4);
        }
    }
};

// IQ1: eight times (grid + 1/8 or - 1/8).
LUCE_DEVICE uint32_t iq1_quad(uint32_t index, int p, bool below) { return half_row(kGridIQ1[index], p, below ? 0x0007FFF7u : 0x000901F9u); }

struct IQ1_S : IQ2Layout {
    static constexpr int kRecord = 1024 + 512 + 64;
    static constexpr bool kHalves = false;
    struct Scales {
        uint32_t w[4], h;  // the eight words of high bits, whose bits 12 .. 14 are scales
        template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) {
            stream_load(w, record + 1024 + 16 * row);
            h = load_u16(record + 1536 + 2 * row);
        }
        LUCE_DEVICE_MEMBER float d() const { return half_to_float(h) / 8; }
        LUCE_DEVICE_MEMBER int scale(int g, int) const { return static_cast<int>((w[g >> 1] >> (16 * (g & 1) + 12)) & 7u) * 2 + 1; }
        LUCE_DEVICE_MEMBER float dmin() const { return 0; }
        LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
    };
    template <int N> struct Raw {
        uint32_t index, high;
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        raw.index = load_u32(record + 128 * g + 4 * row), raw.high = load_u16(record + 1024 + 16 * row + 2 * g);
    }
    LUCE_DEVICE uint32_t quad(uint32_t index, uint32_t high, int p) {
        const int o = p >> 1;
        return iq1_quad(((index >> (8 * o)) & 255u) | ((high >> (3 * o)) & 7u) << 8, p, (high & 0x8000u) != 0);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = quad(raw.index, raw.high, chunk + i), hi[i] = quad(raw.index, raw.high, chunk + i + 4);
    }
};
struct IQ1_M : IQ2Layout {
    static constexpr int kRecord = 1024 + 512 + 256;
    static constexpr bool kHalves = true;
    struct Scales {
        uint32_t w[2];  // four words: four scales of 3 bits, and a nibble of d
        template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) { stream_load(w, record + 1536 + 8 * row); }
        LUCE_DEVICE_MEMBER float d() const {
            return half_to_float(((w[0] >> 12) & 15u) | ((w[0] >> 24) & 0xf0u) | ((w[1] >> 4) & 0xf00u) | ((w[1] >> 16) & 0xf000u)) / 8;
        }
        LUCE_DEVICE_MEMBER int scale(int g, int half) const {
            return static_cast<int>((w[g >> 2] >> (16 * ((g >> 1) & 1) + 6 * (g & 1) + 3 * half)) & 7u) * 2 + 1;
        }
        LUCE_DEVICE_MEMBER float dmin() const { return 0; }
        LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
    };
    template <int N> struct Raw {
        uint32_t index, high;
    };
    template <int N, class Bytes> LUCE_DEVICE void load(Raw<N>& raw, Bytes record, int row, int g, int) {
        raw.index = load_u32(record + 128 * g + 4 * row), raw.high = load_u16(record + 1024 + 16 * row + 2 * g);
    }
    LUCE_DEVICE uint32_t quad(uint32_t index, uint32_t high, int p) {
        const int o = p >> 1;
        const uint32_t h = high >> (4 * o);
        return iq1_quad(((index >> (8 * o)) & 255u) | (h & 7u) << 8, p, (h & 8u) != 0);
    }
    template <int N> LUCE_DEVICE void decode(const Raw<N>& raw, int, int chunk, uint32_t (&lo)[N], uint32_t (&hi)[N], const uint32_t*) {
        for (int i = 0; i < N; i++) lo[i] = quad(raw.index, raw.high, chunk + i), hi[i] = quad(raw.index, raw.high, chunk + i + 4);
    }
};

}  // namespace
}  // namespace lucebox::hip
