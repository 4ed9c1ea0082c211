// A GPU driver opened at run time, so that nothing links against one: HIP's module interface and CUDA's driver interface have the same
// shapes under other names. All HIP names exist since ROCm 5.2.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace lucebox::hip {

// name, arguments, HIP's name, CUDA's name. All return a status; 0 is success.
#define LUCE_DRIVER_FUNCTIONS(X) \
    X(init, (unsigned), "hipInit", "cuInit") \
    X(device_count, (int*), "hipGetDeviceCount", "cuDeviceGetCount") \
    X(device_name, (char*, int, int), "hipDeviceGetName", "cuDeviceGetName") \
    X(device_attribute, (int*, int, int), "hipDeviceGetAttribute", "cuDeviceGetAttribute") \
    X(mem_info, (size_t*, size_t*), "hipMemGetInfo", "cuMemGetInfo_v2") \
    X(mem_alloc, (void**, size_t), "hipMalloc", "cuMemAlloc_v2") \
    X(mem_free, (void*), "hipFree", "cuMemFree_v2") \
    X(host_alloc, (void**, size_t, unsigned), "hipHostMalloc", "cuMemHostAlloc") \
    X(host_free, (void*), "hipHostFree", "cuMemFreeHost") \
    X(upload, (void*, const void*, size_t, void*), "hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2") \
    X(download, (void*, const void*, size_t, void*), "hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2") \
    X(copy, (void*, const void*, size_t, void*), "hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2") \
    X(fill, (void*, unsigned char, size_t, void*), "hipMemsetD8Async", "cuMemsetD8Async") \
    X(module_load, (void**, const void*), "hipModuleLoadData", "cuModuleLoadData") \
    X(module_unload, (void*), "hipModuleUnload", "cuModuleUnload") \
    X(module_function, (void**, void*, const char*), "hipModuleGetFunction", "cuModuleGetFunction") \
    X(launch, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**), "hipModuleLaunchKernel", "cuLaunchKernel") \
    X(stream_create, (void**, unsigned), "hipStreamCreateWithFlags", "cuStreamCreate") \
    X(stream_destroy, (void*), "hipStreamDestroy", "cuStreamDestroy_v2") \
    X(stream_synchronize, (void*), "hipStreamSynchronize", "cuStreamSynchronize") \
    X(capture_begin, (void*, int), "hipStreamBeginCapture", "cuStreamBeginCapture_v2") \
    X(capture_end, (void*, void**), "hipStreamEndCapture", "cuStreamEndCapture") \
    X(graph_instantiate, (void**, void*, unsigned long long), "hipGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags") \
    X(graph_launch, (void*, void*), "hipGraphLaunch", "cuGraphLaunch") \
    X(graph_exec_destroy, (void*), "hipGraphExecDestroy", "cuGraphExecDestroy") \
    X(graph_destroy, (void*), "hipGraphDestroy", "cuGraphDestroy") \
    X(event_create, (void**, unsigned), "hipEventCreateWithFlags", "cuEventCreate") \
    X(event_destroy, (void*), "hipEventDestroy", "cuEventDestroy_v2") \
    X(event_record, (void*, void*), "hipEventRecord", "cuEventRecord") \
    X(event_synchronize, (void*), "hipEventSynchronize", "cuEventSynchronize")

enum class Vendor { kHip, kCuda };

class Driver {
public:
    // Opens the vendor's library (LUCEBOX_HIP_LIBRARY or LUCEBOX_CUDA_LIBRARY name another) and initialises it.
    // Throws Error(kDevice) that says what is missing: the library, a symbol, a device.
    explicit Driver(Vendor vendor);
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    ~Driver();

    Vendor vendor() const { return vendor_; }
    const std::string& library() const { return library_; }
    int devices() const { return devices_; }
    std::string device_text(int device) const;
    // Makes a device the calling thread's. Throws Error(kDevice).
    void use(int device) const;
    // Throws Error(kDevice) with the call's name and the driver's text unless status is 0.
    void check(int status, const char* what) const;
    // Lets a kernel take this much workgroup memory, its own arrays and what the launch gives; only CUDA asks for it.
    void allow_shared_bytes(void* function, int bytes) const;

#define LUCE_DECLARE(name, arguments, hip_name, cuda_name) int(*name) arguments = nullptr;
    LUCE_DRIVER_FUNCTIONS(LUCE_DECLARE)
#undef LUCE_DECLARE

private:
    void* symbol(const char* name) const;
    void open_library();

    Vendor vendor_;
    std::string library_;
    void* handle_ = nullptr;
    int devices_ = 0;
    int (*get_function_attribute_)(int*, int, void*) = nullptr;  // CUDA
    int (*set_function_attribute_)(void*, int, int) = nullptr;
    int (*set_device_)(int) = nullptr;                   // HIP
    int (*retain_context_)(void**, int) = nullptr;       // CUDA
    int (*set_context_)(void*) = nullptr;
    const char* (*hip_error_)(int) = nullptr;
    int (*cuda_error_)(int, const char**) = nullptr;
    std::vector<void*> contexts_;
};

// What `doctor` shows of a vendor: devices, or why there are none.
struct Probe {
    Vendor vendor;
    std::string library;                // empty if none was found
    std::vector<std::string> devices;
    std::string problem;                // empty if all is well
};
Probe probe(Vendor vendor);

}  // namespace lucebox::hip
