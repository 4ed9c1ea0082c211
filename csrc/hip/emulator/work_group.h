// A workgroup on the CPU: one fibre a work-item in one thread. Barriers, exchanges in a wave and matrix instructions are rendezvous points; a
// round of the scheduler in which nobody can move is a divergent barrier. Workgroup memory holds NaN bytes at the start. The order of the
// work-items is chosen by EmulatedDevice::set_order, so that a missing barrier changes the result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#define LUCE_DEVICE [[maybe_unused]] static inline __attribute__((always_inline))
#define LUCE_DEVICE_MEMBER inline __attribute__((always_inline))
#define LUCE_MAP [[maybe_unused]] static constexpr
#define LUCE_SHARED(T, name, n) T* const name = static_cast<T*>(::lucebox::hip::emulator::shared_memory(sizeof(T) * (n)))
#define LUCE_DYNAMIC_SHARED(name) uint8_t* const name = ::lucebox::hip::emulator::dynamic_memory()
#define LUCE_TABLE [[maybe_unused]] static const
#define LUCE_UNROLL
#define LUCE_ROLLED
#define LUCE_ENTRY(name, threads, blocks, Args, ...) \
    namespace { \
    void name##_body(const void* args) { __VA_ARGS__(*static_cast<const Args*>(args)); } \
    const ::lucebox::hip::emulator::Registration name##_registered(chip_kernels(), {#name, name##_body, sizeof(Args), threads}); \
    }

namespace lucebox::hip::emulator {

inline constexpr int kMaxThreads = 1024;
inline constexpr size_t kSharedBytes = 227 * 1024;  // of the chip that has most

struct KernelEntry {
    const char* name;
    void (*body)(const void* args);
    size_t args_bytes;
    int max_threads;
};
using KernelTable = std::vector<KernelEntry>;
struct Registration {
    Registration(KernelTable& table, const KernelEntry& entry) { table.push_back(entry); }
};

// Of the running work-item.
int current_thread();
int current_block(int axis);
inline int current_lane() { return current_thread() & 31; }
void* shared_memory(size_t bytes);
uint8_t* dynamic_memory();
void group_barrier();
void lane_barrier();
// What lane `source` of my wave passes.
uint32_t exchange(uint32_t value, int source);
// d += x (rows) times w (columns) over 16 k, as the vendor's documents place the operands. w's bytes are signed or not; x's are signed.
void wmma_gfx12(int* d, const uint32_t* w, const uint32_t* x, bool w_signed);
void wmma_gfx11(int* d, const uint32_t* w, const uint32_t* x, bool w_signed);
// mma.m16n8k16: w two words, x one, d four sums.
void mma_16816(int* d, const uint32_t* w, uint32_t x, bool w_signed);

enum class Order { kForward, kBackward, kShuffled };
struct Launch {
    const KernelEntry* kernel;
    uint32_t grid[3];
    uint32_t threads;
    size_t shared_bytes, shared_limit;
    const void* args;
    Order order;
};
// Runs all workgroups; throws Error(kDevice) that names the kernel, the workgroup and the fault.
void run(const Launch& launch);

}  // namespace lucebox::hip::emulator

namespace lucebox::hip {

LUCE_DEVICE int thread_id() { return emulator::current_thread(); }
LUCE_DEVICE int block_id() { return emulator::current_block(0); }
LUCE_DEVICE int block_id_y() { return emulator::current_block(1); }
LUCE_DEVICE int block_id_z() { return emulator::current_block(2); }
LUCE_DEVICE void barrier() { emulator::group_barrier(); }
LUCE_DEVICE void wave_barrier() { emulator::lane_barrier(); }

}  // namespace lucebox::hip
