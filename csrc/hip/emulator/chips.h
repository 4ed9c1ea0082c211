// The kernels as each chip has them: kernels.hip compiled once a chip, with internal linkage.
#pragma once
#include "hip/emulator/work_group.h"

namespace lucebox::hip::emulator {

const KernelTable& kernels_gfx12();
const KernelTable& kernels_gfx11();
const KernelTable& kernels_gfx9();
const KernelTable& kernels_nvidia();

}  // namespace lucebox::hip::emulator
