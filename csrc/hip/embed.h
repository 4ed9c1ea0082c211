// ops/embed.h over the matmul's records: a workgroup takes a row of the batch's bucket, a lane a chunk of eight values.
#pragma once
#include "hip/matmul_types.h"

namespace lucebox::hip {
namespace {

template <class T> LUCE_DEVICE void embed(const EmbedArgs& a) {
    LUCE_SHARED(uint32_t, table, T::kTableWords > 0 ? T::kTableWords : 1);
    const int row = block_id();
    if (!a.ids && row >= a.batch->rows) return;
    const int token = a.ids ? a.ids[row] : a.batch->token[row], in = token % kRecordRows;
    if (token < 0) return;
    T::fill_table(table, thread_id(), 256);
    if (T::kTableWords > 0) barrier();
    const uint8_t* records = a.data + static_cast<size_t>(token / kRecordRows) * static_cast<size_t>(a.columns / T::kBlock) * T::kRecord;
    for (int i = thread_id(); i < a.columns / 8; i += 256) {
        const int at = i / 4 * 32, g = at % T::kBlock / 32, chunk = i % 4;
        const uint8_t* record = records + static_cast<size_t>(at / T::kBlock) * T::kRecord;
        typename T::template Raw<1> raw;
        typename T::Scales s;
        uint32_t word[2][1];
        T::template load<1>(raw, record, in, g, chunk), s.load(record, in);
        T::template decode<1>(raw, g, chunk, word[0], word[1], table);
        float* h = a.h + static_cast<size_t>(row) * static_cast<size_t>(a.columns) + static_cast<size_t>(at + 4 * chunk);
        LUCE_UNROLL
        for (int half = 0; half < 2; half++) {
            const float d = s.d() * static_cast<float>(s.scale(g, half));
            const float low = T::kMin ? (T::kBlock == 32 ? s.dmin() : s.dmin() * static_cast<float>(s.min(g, half))) : 0.0f;
            LUCE_UNROLL
            for (int e = 0; e < 4; e++) {
                const float v = d * static_cast<float>(signed_byte(word[half][0], e));
                h[16 * half + e] = !T::kMin ? v : T::kBlock == 32 ? v + low : v - low;
            }
        }
    }
}

}  // namespace
}  // namespace lucebox::hip
