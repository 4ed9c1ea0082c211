#define LUCE_EMULATED_CHIP 12
#include "hip/emulator/faults.h"

static lucebox::hip::emulator::KernelTable& chip_kernels() {
    static lucebox::hip::emulator::KernelTable table;
    return table;
}

#include "hip/compat.h"

namespace lucebox::hip {
namespace {

using emulator::FaultArgs;

// Each work-item passes its value to the next one.
void passes_on(const FaultArgs& a) {
    LUCE_SHARED(int32_t, memory, 256);
    const int t = thread_id();
    memory[t] = a.in[t];
    barrier();
    a.out[t] = memory[(t + 255) % 256];
}
void without_barrier(const FaultArgs& a) {
    LUCE_SHARED(int32_t, memory, 256);
    const int t = thread_id();
    memory[t] = a.in[t];
    a.out[t] = t == 0 ? a.in[255] : memory[t - 1];  // right as long as work-items run in order
}
void divergent_barrier(const FaultArgs& a) {
    if (thread_id() < 128) barrier();
    a.out[thread_id()] = 0;
}
void divergent_exchange(const FaultArgs& a) {
    uint32_t v = static_cast<uint32_t>(a.in[thread_id()]);
    if (lane_id() < 16) v = shfl_xor(v, 1);
    else barrier();
    a.out[thread_id()] = static_cast<int32_t>(v);
}
void uninitialised(const FaultArgs& a) {
    LUCE_SHARED(int32_t, memory, 256);
    const int t = thread_id();
    if (t % 2 == 0) memory[t] = a.in[t];
    barrier();
    a.out[t] = memory[t];
}
void too_much_memory(const FaultArgs& a) {
    LUCE_SHARED(int32_t, memory, 16 * 1024 + 1);
    a.out[thread_id()] = memory[0];
}

// Wave 0: w and x are the same 16 rows of 32 bytes, in[256] words as bytes; out = their 16 x 16 products.
template <class Sums> void tile_product(const FaultArgs& a) {
    if (thread_id() >= 32) return;
    const int lane = lane_id();
    const uint8_t* rows = reinterpret_cast<const uint8_t*>(a.in);
    uint32_t w[4];
    for (int i = 0; i < 4; i++) memcpy(&w[i], rows + Map::frag_row(lane, 0) * 32 + i / 2 * 16 + (Map::frag_chunk(lane) + i % 2) * 4, 4);
    int d[8];
    tile32<16>(d, w, w);
    for (int i = 0; i < 8; i++) a.out[Sums::acc_r(lane, i) * 16 + Map::frag_row(lane, Map::acc_row(i))] = d[i];
}

}  // namespace
}  // namespace lucebox::hip

using namespace lucebox::hip;
using lucebox::hip::emulator::FaultArgs;
LUCE_ENTRY(passes_on, 256, 1, FaultArgs, passes_on)
LUCE_ENTRY(without_barrier, 256, 1, FaultArgs, without_barrier)
LUCE_ENTRY(divergent_barrier, 256, 1, FaultArgs, divergent_barrier)
LUCE_ENTRY(divergent_exchange, 256, 1, FaultArgs, divergent_exchange)
LUCE_ENTRY(uninitialised, 256, 1, FaultArgs, uninitialised)
LUCE_ENTRY(too_much_memory, 256, 1, FaultArgs, too_much_memory)
LUCE_ENTRY(tile, 256, 1, FaultArgs, tile_product<Map>)
LUCE_ENTRY(tile_of_another_chip, 256, 1, FaultArgs, tile_product<MapGfx11>)

const lucebox::hip::emulator::KernelTable& lucebox::hip::emulator::faulty_kernels() { return chip_kernels(); }
