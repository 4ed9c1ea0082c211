// The tables of the SIMD variants, in a unit of the base instruction set.
#include "cpu/simd.h"

namespace lucebox::cpu {

const Kernels* avx2() {
    static constexpr Kernels kernels{
        .name = "avx2",
        .norm_row = ymm::norm_row,
        .quantize_row = ymm::quantize_row,
        .swiglu_row = ymm::swiglu_row,
        .packed_bytes = tiles_bytes,
        .pack = pack_tiles,
        .matmul = ymm::matmul,
        .conv_silu = ymm::conv_silu,
        .l2_norm = ymm::l2_norm,
        .delta = ymm::delta,
        .gated_norm = ymm::gated_norm,
        .rotate = ymm::rotate,
        .store_kv = ymm::store_kv,
        .attend = ymm::attend,
        .argmax_row = ymm::argmax_row,
        .math_row = ymm::math_row,
    };
    return &kernels;
}

const Kernels* avx512() {
    static constexpr Kernels kernels{
        .name = "avx512",
        .norm_row = zmm::norm_row,
        .quantize_row = zmm::quantize_row,
        .swiglu_row = zmm::swiglu_row,
        .packed_bytes = tiles_bytes,
        .pack = pack_tiles,
        .matmul = zmm::matmul,
        .conv_silu = zmm::conv_silu,
        .l2_norm = zmm::l2_norm,
        .delta = zmm::delta,
        .gated_norm = zmm::gated_norm,
        .rotate = zmm::rotate,
        .store_kv = zmm::store_kv,
        .attend = zmm::attend,
        .argmax_row = zmm::argmax_row,
        .math_row = zmm::math_row,
    };
    return &kernels;
}

}  // namespace lucebox::cpu
