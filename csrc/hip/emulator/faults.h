// Kernels with one planted fault each, and their right form, by which the tests see that the emulator finds such faults.
#pragma once
#include "hip/emulator/work_group.h"

namespace lucebox::hip::emulator {

inline constexpr int kFaultThreads = 256;
struct FaultArgs {
    const int32_t* in;  // [256]
    int32_t* out;       // [256]
};
const KernelTable& faulty_kernels();

}  // namespace lucebox::hip::emulator
