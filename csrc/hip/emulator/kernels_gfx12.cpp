#define LUCE_EMULATED_CHIP 12
#include "hip/emulator/chips.h"

static lucebox::hip::emulator::KernelTable& chip_kernels() {
    static lucebox::hip::emulator::KernelTable table;
    return table;
}

#include "hip/kernels.hip"

const lucebox::hip::emulator::KernelTable& lucebox::hip::emulator::kernels_gfx12() { return chip_kernels(); }
