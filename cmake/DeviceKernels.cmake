# Device-only code objects of csrc/hip/kernels.hip, package data of the wheel: gfx….hsaco by any clang ≥ 19 or ROCm's own, lucebox.fatbin by
# nvcc ≥ 12.8. No GPU package is needed to build or to import. A compiler that is missing for an architecture named explicitly is an error.
set(default_hip_architectures gfx1201 gfx1200 gfx1151 gfx1100 gfx906)
set(LUCEBOX_HIP_ARCHITECTURES "default" CACHE STRING "AMD architectures to compile kernels for; default: ${default_hip_architectures}")
set(LUCEBOX_CUDA_ARCHITECTURES "" CACHE STRING "NVIDIA architectures to compile kernels for, such as 90; default: none")

set(kernel_source ${PROJECT_SOURCE_DIR}/csrc/hip/kernels.hip)
file(GLOB_RECURSE kernel_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/hip/*.h ${PROJECT_SOURCE_DIR}/csrc/ops/*.h)
set(kernel_folder ${CMAKE_BINARY_DIR}/kernels)
set(kernel_images)

set(hip_explicit ON)
set(hip_architectures ${LUCEBOX_HIP_ARCHITECTURES})
if(hip_architectures STREQUAL "default")
    set(hip_explicit OFF)
    set(hip_architectures ${default_hip_architectures})
endif()
if(hip_architectures AND NOT hip_architectures STREQUAL "none")
    find_program(LUCEBOX_CLANG NAMES clang++-22 clang++-21 clang++-20 clang++-19 amdclang++ HINTS /opt/rocm/bin /opt/rocm/llvm/bin
                 DOC "clang ≥ 19 or ROCm's clang, for the AMD kernels")
    if(LUCEBOX_CLANG)
        foreach(arch IN LISTS hip_architectures)
            set(image ${kernel_folder}/${arch}.hsaco)
            add_custom_command(
                OUTPUT ${image}
                COMMAND ${CMAKE_COMMAND} -E make_directory ${kernel_folder}
                COMMAND ${LUCEBOX_CLANG} -x hip --offload-arch=${arch} --offload-device-only --no-gpu-bundle-output -nogpuinc -nogpulib
                        -std=c++20 -O3 -ffp-contract=off -fno-fast-math -I${PROJECT_SOURCE_DIR}/csrc ${kernel_source} -o ${image}
                DEPENDS ${kernel_source} ${kernel_headers}
                COMMENT "Kernels for ${arch}" VERBATIM)
            list(APPEND kernel_images ${image})
        endforeach()
    elseif(hip_explicit)
        message(FATAL_ERROR "LUCEBOX_HIP_ARCHITECTURES=${LUCEBOX_HIP_ARCHITECTURES} needs clang 19 or newer: apt install clang-19 lld-19")
    else()
        message(STATUS "No clang 19 or newer: this build has no AMD kernels (apt install clang-19 lld-19)")
    endif()
endif()

if(LUCEBOX_CUDA_ARCHITECTURES)
    find_program(LUCEBOX_NVCC nvcc HINTS /usr/local/cuda/bin DOC "nvcc ≥ 12.8, for the NVIDIA kernels")
    if(NOT LUCEBOX_NVCC)
        message(FATAL_ERROR "LUCEBOX_CUDA_ARCHITECTURES=${LUCEBOX_CUDA_ARCHITECTURES} needs nvcc 12.8 or newer")
    endif()
    set(gencode)
    foreach(arch IN LISTS LUCEBOX_CUDA_ARCHITECTURES)
        list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
    set(image ${kernel_folder}/lucebox.fatbin)
    add_custom_command(
        OUTPUT ${image}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${kernel_folder}
        COMMAND ${LUCEBOX_NVCC} -x cu -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr -fatbin ${gencode} -I${PROJECT_SOURCE_DIR}/csrc
                ${kernel_source} -o ${image}
        DEPENDS ${kernel_source} ${kernel_headers}
        COMMENT "Kernels for NVIDIA ${LUCEBOX_CUDA_ARCHITECTURES}" VERBATIM)
    list(APPEND kernel_images ${image})
endif()

if(kernel_images)
    add_custom_target(device_kernels ALL DEPENDS ${kernel_images})
    install(FILES ${kernel_images} DESTINATION lucebox/kernels)
endif()
