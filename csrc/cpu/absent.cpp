// The variants that this build lacks.
#include "cpu/kernels.h"

namespace lucebox::cpu {
const Kernels* avx2() { return nullptr; }
const Kernels* avx512() { return nullptr; }
}  // namespace lucebox::cpu
