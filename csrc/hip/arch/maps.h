// Which weights, activations and sums a lane of a wave holds in the tile product of 16 outputs x 16 rows x 32 k. A chunk c (0..3) of 32 k
// is k 4c .. 4c + 3 and k 16 + 4c .. 16 + 4c + 3. A lane holds kFragChunks chunks from frag_chunk(lane) on of kFragRows rows frag_row(lane, r),
// of the weights and of the activations alike, as four words: 0 and 1 have k below 16, 2 and 3 the others. Of its eight sums, i is output
// acc_n(lane, i) = frag_row(lane, acc_row(i)) and row acc_r(lane, i).
// Attention gives key key_of_row(row) of 16 to row `row`, so that the keys of a lane's sums are those of its words in the next product:
// sum i is key 4 frag_chunk(lane) + key_of_sum(i).
#pragma once

namespace lucebox::hip {

struct MapGfx12 {
    static constexpr int kFragRows = 1, kFragChunks = 2;
    LUCE_MAP int frag_row(int lane, int) { return lane & 15; }
    LUCE_MAP int frag_chunk(int lane) { return (lane >> 4) * 2; }
    LUCE_MAP int acc_row(int) { return 0; }
    LUCE_MAP int acc_r(int lane, int i) { return (lane >> 4) * 8 + i; }
    LUCE_MAP int key_of_row(int row) { return row; }
    LUCE_MAP int key_of_sum(int i) { return i; }
};
struct MapGfx11 : MapGfx12 {
    LUCE_MAP int acc_r(int lane, int i) { return 2 * i + (lane >> 4); }
    LUCE_MAP int key_of_row(int row) { return (row & 1) * 8 + (row >> 1); }
};
struct MapNvidia {
    static constexpr int kFragRows = 2, kFragChunks = 1;
    LUCE_MAP int frag_row(int lane, int r) { return (lane >> 2) + 8 * r; }
    LUCE_MAP int frag_chunk(int lane) { return lane & 3; }
    LUCE_MAP int acc_row(int i) { return (i >> 1) & 1; }
    LUCE_MAP int acc_r(int lane, int i) { return (i >> 2) * 8 + (lane & 3) * 2 + (i & 1); }
    LUCE_MAP int key_of_row(int row) { return row % 8 / 2 * 4 + row / 8 * 2 + row % 2; }
    LUCE_MAP int key_of_sum(int i) { return (i >> 2) * 2 + (i & 1); }
};

}  // namespace lucebox::hip
