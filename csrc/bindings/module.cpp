// lucebox._core. Compiled for any x86-64: it refuses a processor without the instructions that the rest is compiled for.
#include "bindings/bindings.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
        throw py::import_error("lucebox needs a processor with AVX2, FMA and BMI2 (x86-64-v3, 2013 and later)");
#endif
    using namespace lucebox::bindings;
    init_errors(m);
    init_gguf(m);
    init_quants(m);
    init_model(m);
    init_engine(m);
    init_devices(m);
    init_sample(m);
    init_testing(m);
}
