// Keys and values on their way to the tile products of attention_tile.h: of a segment a wave takes its tile of 32 keys by blocks of 32 dimensions, then of
// each tile's values its 32 dimensions. Where kAsyncCopies these blocks come through a ring of the wave's in workgroup memory, the next segment's keys
// behind the values of the last; elsewhere a block is where the page has it.
#pragma once
#include "hip/attention.h"

namespace lucebox::hip {
namespace {

inline constexpr int kTilesASegment = ops::kPage / kTile, kLaneRows = Map::kFragRows;  // queries of a lane

// 32 keys x 32 dimensions: words of four (keys: dimensions; values: keys), `step` words from one four to the next, and 32 scales.
struct KvBlock {
    const uint32_t* words;
    int step;
    const uint8_t* scales;
};
// In the ring, the fours' words are in another order, so that a fragment's are in different banks.
LUCE_DEVICE int in_ring(int four, int word) { return word ^ 8 * (four & 3); }

// A lane's fragment of 16 rows, row `at` words apart, fours `step` words apart.
template <bool kRing> LUCE_DEVICE void load_fragment(uint32_t (&x)[4], const uint32_t* base, const int (&row)[2], int step, int lane) {
    LUCE_UNROLL
    for (int r = 0; r < kLaneRows; r++)
        LUCE_UNROLL
        for (int c = 0; c < Map::kFragChunks; c++) {
            const int chunk = Map::frag_chunk(lane) + c, at = kRing ? in_ring(chunk, row[r]) : row[r];
            x[r + c] = base[chunk * step + at], x[2 + r + c] = base[(chunk + 4) * step + at];
        }
}

LUCE_DEVICE int part_end(const AttentionArgs& a, int part, int most) {
    return most / a.part_keys == part ? most + 1 : (part + 1) * a.part_keys;
}

struct KvSegment {
    int first, tiles;     // its first key; tiles that any query sees
    const uint8_t* keys;  // the first tile of keys
};

template <int kBlocks> struct KvStream {
    static constexpr int kSlots = kBlocks, kBlockBytes = 1024 + 64;
    const AttentionArgs& a;
    int slot, kv_head, end, most, wave;  // end: of the part's keys
    uint8_t* ring;
    KvSegment now, next;

    LUCE_DEVICE_MEMBER KvStream(uint8_t* memory, int first, int last, int seen, const AttentionArgs& args, int sequence, int head)
        : a(args), slot(sequence), kv_head(head), end(last), most(seen), wave(uniform(thread_id() / 32)), ring(memory + wave * kSlots * kBlockBytes),
          now(segment(first)), next(segment(first + ops::kPage)) {}
    LUCE_DEVICE_MEMBER KvSegment segment(int first) const {
        const int left = most + 1 - first, tiles = left < ops::kPage ? (left + kTile - 1) / kTile : kTilesASegment;
        if (first >= end) return {first, 0, nullptr};
        return {first, tiles, tile_of<KvForm::Q8_0>(a, slot, kv_head, first)};
    }
    LUCE_DEVICE_MEMBER bool done() const { return now.tiles == 0; }
    LUCE_DEVICE_MEMBER void advance() { now = next, next = segment(next.first + ops::kPage); }

    LUCE_DEVICE_MEMBER KvBlock in_page(const KvSegment& s, bool values, int tile, int block) const {
        constexpr size_t kBytes = static_cast<size_t>(kBlocks * 32 * (kTile + 2));  // of a tile's keys, and of its values
        const uint8_t* at = s.keys + (2 * static_cast<size_t>(tile) + (values ? 1 : 0)) * kBytes;
        return {reinterpret_cast<const uint32_t*>(at) + block * 32 * (values ? 1 : 8), values ? kBlocks * 32 : kTile,
                at + kBlocks * 32 * kTile + block * kTile * 2};
    }
    LUCE_DEVICE_MEMBER KvBlock arrived(int at) const {
        async_wait<kSlots - 1>();
        wave_barrier();
        const uint8_t* block = ring + at % kSlots * kBlockBytes;
        return {reinterpret_cast<const uint32_t*>(block), 32, block + 1024};
    }
    LUCE_DEVICE_MEMBER KvBlock keys_block(int block) const {
        if constexpr (kAsyncCopies) return arrived(block);
        else return in_page(now, false, wave, block);
    }
    LUCE_DEVICE_MEMBER KvBlock values_block(int tile) const {
        if constexpr (kAsyncCopies) return arrived(tile);
        else return in_page(now, true, tile, wave);
    }

    LUCE_DEVICE_MEMBER void fetch(const KvBlock& from, int at) const {
        uint8_t* to = ring + at % kSlots * kBlockBytes;
        LUCE_UNROLL
        for (int i = 0; i < 2; i++) {
            const int four = i * 4 + lane_id() / 8, word = lane_id() % 8 * 4;
            async_copy16(to + (four * 32 + in_ring(four, word)) * 4, reinterpret_cast<const uint8_t*>(from.words + four * from.step + word));
        }
        if (lane_id() < 4) async_copy16(to + 1024 + lane_id() * 16, from.scales + lane_id() * 16);
    }
    LUCE_DEVICE_MEMBER void fetch_keys(const KvSegment& s, int block) const {
        if (wave < s.tiles) fetch(in_page(s, false, wave, block), block);
        async_commit();
    }
    LUCE_DEVICE_MEMBER void fetch_values(int tile) const {
        if (tile < now.tiles && wave < kBlocks) fetch(in_page(now, true, tile, wave), tile);
        async_commit();
    }
    LUCE_DEVICE_MEMBER void start() const {
        if constexpr (kAsyncCopies)
            for (int b = 0; b < kBlocks; b++) fetch_keys(now, b);
    }
    // A block is done with: its slot takes another.
    LUCE_DEVICE_MEMBER void after_keys(int block) const {
        if constexpr (kAsyncCopies) wave_barrier(), fetch_values(block);
    }
    LUCE_DEVICE_MEMBER void after_values(int tile) const {
        if constexpr (kAsyncCopies) {
            wave_barrier();
            if (tile + kSlots < kTilesASegment) fetch_values(tile + kSlots);
            else fetch_keys(next, tile + kSlots - kTilesASegment);
        }
    }
};

}  // namespace
}  // namespace lucebox::hip
