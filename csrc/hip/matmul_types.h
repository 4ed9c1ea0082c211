// What the block layouts share. Weights are repacked at load (runtime/pack.cpp) into records of 32 outputs x one block (32 or 256 values), in
// planes whose rows are the 32 outputs, the same for every chip. Reading 16 bytes a row gives a lane an output of its own (1 to 4 rows of
// activations, dot4); 8 or 4 bytes give it its fragment of the tile product (arch/maps.h). Groups are the 32s of a block.
//
// A layout has: kBlock, kRecord (bytes), kMin (a minimum), kHalves (scales per 16), kTableWords (of workgroup memory; fill_table), and
//   Raw<N>            what is loaded for N chunks of a group; load(raw, record, row, group, chunk), from device or workgroup memory
//   decode            raw to int8: lo[i] are the four values of chunk + i with k below 16, hi[i] the other four
//   kLevels           nibbles are indices of 16 levels(), Raw is NibbleRaw
//   Scales            of a row: load(record, row); d(); scale(group, half); dmin(), min(group, half) where kMin
#pragma once
#include "hip/compat.h"
#include "hip/params.h"

namespace lucebox::hip {
namespace {

inline constexpr int kRecordRows = 32;

// Bytes of workgroup memory; a plain pointer is into device memory.
struct InGroup {
    const uint8_t* p;
};
LUCE_DEVICE InGroup operator+(InGroup b, int n) { return {b.p + n}; }
LUCE_DEVICE const uint8_t* pointer(const uint8_t* p) { return p; }
LUCE_DEVICE const uint8_t* pointer(InGroup b) { return b.p; }
template <int N> LUCE_DEVICE void stream_load(uint32_t (&v)[N], InGroup b) {
    if constexpr (N == 1) v[0] = *reinterpret_cast<const uint32_t*>(b.p);
    if constexpr (N == 2) {
        const Word2 t = *reinterpret_cast<const Word2*>(b.p);
        v[0] = t.x, v[1] = t.y;
    }
    if constexpr (N == 4) {
        const Word4 t = *reinterpret_cast<const Word4*>(b.p);
        v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
    }
}
template <class Bytes> LUCE_DEVICE uint32_t load_u16(Bytes b) { return *reinterpret_cast<const uint16_t*>(pointer(b)); }
template <class Bytes> LUCE_DEVICE uint32_t load_u32(Bytes b) { return *reinterpret_cast<const uint32_t*>(pointer(b)); }
LUCE_DEVICE int signed_byte(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }

// Bytes b (0 .. 127) to b - offset.
LUCE_DEVICE uint32_t minus(uint32_t bytes, uint32_t offset) { return ((bytes | 0x80808080u) - offset * 0x01010101u) ^ 0x80808080u; }
// Bits 0 .. 3 to the low bits of four bytes.
LUCE_DEVICE uint32_t spread_bits(uint32_t b) { return (b | b << 7 | b << 14 | b << 21) & 0x01010101u; }
// Four codes of two bits to four bytes.
LUCE_DEVICE uint32_t spread_pairs(uint32_t b) { return (b & 3u) | (b & 12u) << 6 | (b & 48u) << 12 | (b & 192u) << 18; }
// Negates the bytes (1 .. 127) whose sign (0 or 1) is set.
LUCE_DEVICE uint32_t negate(uint32_t bytes, uint32_t signs) { return (bytes ^ ((signs << 8) - signs)) + signs; }
// Seven signs are stored; the eighth makes the number of minus signs even.
LUCE_DEVICE uint32_t eight_signs(uint32_t seven) { return seven | static_cast<uint32_t>(__builtin_popcount(seven) & 1) << 7; }

// A plane of 4 bits: byte i of word c is value 4c + i and, high, value 16 + 4c + i.
template <int N, class Bytes> LUCE_DEVICE void load_nibbles(uint32_t (&q)[N], Bytes plane, int row, int chunk) {
    stream_load(q, plane + row * 16 + chunk * 4);
}
// A plane of 1 bit: bit p of byte i is of value 4p + i. Shifted to bit 4 of the bytes of quad p.
LUCE_DEVICE uint32_t bit_of_quad(uint32_t plane, int quad) { return (plane >> quad) & 0x01010101u; }
// A plane of 2 bits, one word for k below 16 and one for the others: bits 2c of byte i are of value 4c + i.
LUCE_DEVICE uint32_t pair_of_quad(uint32_t word, int quad) { return (word >> (2 * quad)) & 0x03030303u; }

// The levels of 16 indices, four to a word.
struct Levels {
    uint32_t word[4];
    LUCE_DEVICE_MEMBER constexpr int at(int i) const { return static_cast<int8_t>(word[i / 4] >> (8 * (i % 4))); }
};
// As two tables of eight for `pick`: an index of 8 and more gives the sign of a low entry, a smaller one that of a high entry, and the two add up to
// the level.
struct SplitLevels {
    uint32_t low[2], high[2];
};
LUCE_DEVICE constexpr SplitLevels split_levels(const Levels& levels) {
    SplitLevels s{};
    for (int i = 0; i < 8; i++) {
        const int low = levels.at(i), high = levels.at(i + 8);
        const int l = high < 0 ? low + 1 : low, h = low < 0 ? high + 1 : high;
        s.low[i / 4] |= (static_cast<uint32_t>(l) & 255u) << (8 * (i % 4)), s.high[i / 4] |= (static_cast<uint32_t>(h) & 255u) << (8 * (i % 4));
    }
    return s;
}
// Levels of a word's eight nibbles in their order, in the two parts. (Only chips that have `pick` make this.)
template <class Split> LUCE_DEVICE void pick_levels(uint32_t q, const Split& t, uint32_t (&low)[2], uint32_t (&high)[2]) {
    const uint32_t far = q ^ 0x88888888u;
    low[0] = pick(t.low[1], t.low[0], q), low[1] = pick(t.low[1], t.low[0], q >> 16);
    high[0] = pick(t.high[1], t.high[0], far), high[1] = pick(t.high[1], t.high[0], far >> 16);
}

// The split levels in workgroup memory, a copy for each lane: of a value that is the same for all, the compiler makes a copy for every use.
template <class T> struct LevelsTable {
    static constexpr int kTableWords = kSplitLevels ? 128 : 0;
    LUCE_DEVICE void fill_table(uint32_t* table, int thread, int threads) {
        const SplitLevels s = split_levels(T::levels());
        for (int i = thread; i < kTableWords; i += threads) table[i] = i % 4 == 0 ? s.low[0] : i % 4 == 1 ? s.low[1] : i % 4 == 2 ? s.high[0] : s.high[1];
    }
};
LUCE_DEVICE SplitLevels lane_levels(const uint32_t* table) {
    const Word4 t = *reinterpret_cast<const Word4*>(table + 4 * lane_id());
    return {{t.x, t.y}, {t.z, t.w}};
}

struct NoTable {
    static constexpr int kTableWords = 0;
    static constexpr bool kLevels = false;
    LUCE_DEVICE void fill_table(uint32_t*, int, int) {}
};
template <int N> struct NibbleRaw {
    uint32_t q[N];
};

// One f16 a row.
template <int kAt> struct HalfScale {
    uint32_t h;
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) { h = load_u16(record + kAt + 2 * row); }
    LUCE_DEVICE_MEMBER float d() const { return half_to_float(h); }
    LUCE_DEVICE_MEMBER int scale(int, int) const { return 1; }
    LUCE_DEVICE_MEMBER float dmin() const { return 0; }
    LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
};
// f16 scale and f16 minimum a row.
template <int kAt> struct HalfPair {
    uint32_t v;
    template <class Bytes> LUCE_DEVICE_MEMBER void load(Bytes record, int row) { v = load_u32(record + kAt + 4 * row); }
    LUCE_DEVICE_MEMBER float d() const { return half_to_float(v & 0xffffu); }
    LUCE_DEVICE_MEMBER float dmin() const { return half_to_float(v >> 16); }
    LUCE_DEVICE_MEMBER int scale(int, int) const { return 1; }
    LUCE_DEVICE_MEMBER int min(int, int) const { return 0; }
};

}  // namespace
}  // namespace lucebox::hip
