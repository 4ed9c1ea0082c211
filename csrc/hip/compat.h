// What kernels are written in: one source for HIP (clang, with or without ROCm's headers), CUDA (nvcc) and the emulator.
// Kernel headers use only this file, arch.h, params.h and ops/math.h.
//   LUCE_DEVICE, LUCE_DEVICE_MEMBER   a device function, a member function
//   LUCE_SHARED(T, name, n)        an array in the workgroup's memory; LUCE_DYNAMIC_SHARED(name): bytes whose number the launch gives
//   LUCE_ENTRY(name, threads, blocks, Args, body)   a kernel `name` that runs body(args); at most `threads`, `blocks` a multiprocessor wanted
//   thread_id block_id block_id_y block_id_z barrier wave_barrier
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(LUCE_EMULATED_CHIP)
#include "hip/emulator/work_group.h"
#elif defined(__CUDACC__)
#define LUCE_DEVICE static __device__ __forceinline__
#define LUCE_DEVICE_MEMBER __device__ __forceinline__
#define LUCE_MAP static __host__ __device__ constexpr
#define LUCE_SHARED(T, name, n) __shared__ T name[n]
#define LUCE_DYNAMIC_SHARED(name) extern __shared__ __align__(16) uint8_t name[]
#define LUCE_TABLE static __device__ const
#define LUCE_UNROLL _Pragma("unroll")
#define LUCE_ROLLED _Pragma("unroll 1")
#define LUCE_ENTRY(name, threads, blocks, Args, ...) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args args) { __VA_ARGS__(args); }
namespace lucebox::hip {
LUCE_DEVICE int thread_id() { return static_cast<int>(threadIdx.x); }
LUCE_DEVICE int block_id() { return static_cast<int>(blockIdx.x); }
LUCE_DEVICE int block_id_y() { return static_cast<int>(blockIdx.y); }
LUCE_DEVICE int block_id_z() { return static_cast<int>(blockIdx.z); }
LUCE_DEVICE void barrier() { __syncthreads(); }
LUCE_DEVICE void wave_barrier() { __syncwarp(); }
}  // namespace lucebox::hip
#else  // HIP
#ifndef __host__
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#endif
#define memcpy __builtin_memcpy  // the library's is a host function without ROCm's headers
#define LUCE_DEVICE [[maybe_unused]] static __attribute__((device)) inline __attribute__((always_inline))
#define LUCE_DEVICE_MEMBER __attribute__((device)) inline __attribute__((always_inline))
#define LUCE_MAP static __attribute__((host)) __attribute__((device)) constexpr
#define LUCE_SHARED(T, name, n) __attribute__((shared)) static T name[n]
#define LUCE_DYNAMIC_SHARED(name) extern __attribute__((shared)) __attribute__((aligned(16))) uint8_t name[]
#define LUCE_TABLE static __attribute__((device)) const
#define LUCE_UNROLL _Pragma("unroll")
#define LUCE_ROLLED _Pragma("unroll 1")
#define LUCE_ENTRY(name, threads, blocks, Args, ...) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void name(const Args args) { __VA_ARGS__(args); }
namespace lucebox::hip {
LUCE_DEVICE int thread_id() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
LUCE_DEVICE int block_id() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
LUCE_DEVICE int block_id_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
LUCE_DEVICE int block_id_z() { return static_cast<int>(__builtin_amdgcn_workgroup_id_z()); }
LUCE_DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Shared memory of one wave runs in order: only the compiler must be held back.
LUCE_DEVICE void wave_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
}  // namespace lucebox::hip
#endif

#include "ops/math.h"

namespace lucebox::hip {

struct alignas(16) Word4 {
    uint32_t x, y, z, w;
};
struct alignas(8) Word2 {
    uint32_t x, y;
};
struct alignas(16) Float4 {
    float x, y, z, w;
};

LUCE_DEVICE int lane_id() { return thread_id() & 31; }

}  // namespace lucebox::hip

#include "hip/arch.h"
