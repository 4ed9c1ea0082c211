// Types that are not kept in tiles: 512 columns of 16 outputs, decoded from the file's layout for all rows of a call. Strip and eight rows
// (14 KB) stay in the first cache.
#pragma once
#include "cpu/tiles.h"

namespace lucebox::cpu {

inline constexpr int kStripGroups = 16, kStripRows = 64;

// Weights + 128 as unsigned bytes, [16 outputs][4 columns] a vector; scales and minimums per 16 columns; d per 256.
struct alignas(64) Strip {
    uint8_t v[kStripGroups][8][64];
    uint8_t scale[2 * kStripGroups][kLanes], min[2 * kStripGroups][kLanes];
    float d[kStripGroups / 8][kLanes], dmin[kStripGroups / 8][kLanes];
};

// Groups of 32 columns at .. at + groups - 1 of tile t. A lane that the last tile lacks repeats the last output.
void decode_strip(const ops::Weight& w, int t, int at, int groups, Strip& out);

}  // namespace lucebox::cpu
