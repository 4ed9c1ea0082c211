// The layout of the KV cache. A page holds 256 tokens of all kv heads of a layer; a head's page is eight tiles of 32 keys, so that a
// vector's lanes are keys in the scores and dimensions in the value sums:
//   q8_0  K tile: int8 [head_dim / 4][32 keys][4], f16 scale [head_dim / 32][32 keys]
//         V tile: int8 [32 / 4][head_dim][4 keys], f16 scale [head_dim / 32][32 keys]
//   f16, f32  K tile: [head_dim][32 keys]; V tile: [32 keys][head_dim]
// Memory is cleared once: a NaN scale never written would spoil 0 * d.
#pragma once
#include "ops/tensor.h"

namespace lucebox::ops {

enum class KvForm { Q8_0, F16, F32 };
inline constexpr int kTile = 32;

struct KvLayout {
    KvForm form;
    int kv_heads, head_dim;

    constexpr size_t scales_at() const { return static_cast<size_t>(head_dim) * kTile; }  // in a q8_0 tile, after the int8
    constexpr size_t tile_bytes() const {                                                 // of K; V's is as large
        const size_t values = static_cast<size_t>(head_dim) * kTile;
        return form == KvForm::Q8_0 ? values + values / 32 * 2 : values * (form == KvForm::F16 ? 2 : 4);
    }
    constexpr size_t page_bytes() const { return tile_bytes() * 2 * (kPage / kTile) * static_cast<size_t>(kv_heads); }
    // Bytes from the page's start to the K tile (V: plus tile_bytes()) of a head.
    constexpr size_t tile_at(int head, int tile) const {
        return (static_cast<size_t>(head) * (kPage / kTile) + static_cast<size_t>(tile)) * 2 * tile_bytes();
    }
    // Index of an element in its tile, in elements.
    constexpr size_t k_index(int key, int dim) const {
        return form == KvForm::Q8_0 ? (static_cast<size_t>(dim / 4) * kTile + key) * 4 + dim % 4 : static_cast<size_t>(dim) * kTile + key;
    }
    constexpr size_t v_index(int key, int dim) const {
        return form == KvForm::Q8_0 ? (static_cast<size_t>(key / 4) * head_dim + dim) * 4 + key % 4 : static_cast<size_t>(key) * head_dim + dim;
    }
    static constexpr size_t scale_index(int key, int dim) { return static_cast<size_t>(dim / 32) * kTile + key; }
};

}  // namespace lucebox::ops
