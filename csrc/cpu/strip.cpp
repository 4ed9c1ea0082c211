#include "cpu/strip.h"
#include "quants/quants.h"
#include <algorithm>
#include <cstring>

namespace lucebox::cpu {

void decode_strip(const ops::Weight& w, int t, int at, int groups, Strip& out) {
    const size_t block_bytes = gguf::type_info(w.type).bytes, row_bytes = gguf::row_bytes(w.type, static_cast<uint64_t>(w.columns));
    quants::Block b;
    for (int l = 0; l < kLanes; l++) {
        const size_t n = static_cast<size_t>(std::min(t * kLanes + l, w.rows - 1));
        const uint8_t* row = w.data + n * row_bytes + static_cast<size_t>(at / 8) * block_bytes;
        for (int block = 0; block < groups / 8; block++) {
            quants::decode_block(w.type, row + static_cast<size_t>(block) * block_bytes, b);
            for (int e = 0; e < 64; e++) {
                uint32_t four;
                std::memcpy(&four, b.q + 4 * e, 4);
                four ^= 0x80808080u;
                std::memcpy(out.v[8 * block + e / 8][e % 8] + 4 * l, &four, 4);
            }
            for (int s = 0; s < 16; s++) out.scale[16 * block + s][l] = static_cast<uint8_t>(b.scale[s]), out.min[16 * block + s][l] = b.min[s];
            out.d[block][l] = b.d, out.dmin[block][l] = b.dmin;
        }
    }
}

}  // namespace lucebox::cpu
