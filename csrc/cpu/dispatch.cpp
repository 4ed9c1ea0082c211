#include "cpu/kernels.h"
#include "cpu/portable.h"

namespace lucebox::cpu {

const Kernels& portable() {
    static constexpr Kernels kernels{
        .name = "portable",
        .norm_row = portable_norm_row,
        .quantize_row = portable_quantize_row,
        .swiglu_row = portable_swiglu_row,
        .packed_bytes = portable_packed_bytes,
        .pack = portable_pack,
        .matmul = portable_matmul,
        .conv_silu = portable_conv_silu,
        .l2_norm = portable_l2_norm,
        .delta = portable_delta,
        .gated_norm = portable_gated_norm,
        .rotate = portable_rotate,
        .store_kv = portable_store_kv,
        .attend = portable_attend,
        .argmax_row = portable_argmax_row,
        .math_row = portable_math_row,
    };
    return kernels;
}

Features features() {
    Features f{};
#if defined(__x86_64__)
    __builtin_cpu_init();
    f.fma = __builtin_cpu_supports("fma");
    f.avx2 = __builtin_cpu_supports("avx2");
    f.f16c = __builtin_cpu_supports("f16c");
    f.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    f.avx512_vnni = __builtin_cpu_supports("avx512vnni");
    f.avx512_vbmi = __builtin_cpu_supports("avx512vbmi");
#endif
    return f;
}

std::vector<const Kernels*> variants() {
    const Features f = features();
    std::vector<const Kernels*> found{&portable()};
    if (avx2() && f.avx2 && f.fma && f.f16c) found.push_back(avx2());
    if (avx512() && f.avx512 && f.avx512_vnni && f.avx512_vbmi) found.push_back(avx512());
    return found;
}

const Kernels& choose(const std::string& variant) {
    const auto all = variants();
    if (variant == "auto") return *all.back();
    std::string names = "auto";
    for (const Kernels* kernels : all) {
        if (variant == kernels->name) return *kernels;
        names += std::string(", ") + kernels->name;
    }
    throw Error(Kind::kRequest, "variant is \"" + variant + "\"; this machine and build have " + names);
}

}  // namespace lucebox::cpu
