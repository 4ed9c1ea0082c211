// A GPU driver that is none: memory is the host's, kernels do nothing. FAKE_DEVICES is the number of devices; FAKE_FAIL=name:n makes
// the n-th call of a function fail, name being HIP's. Compiled as libamdhip64 or, with -DFAKE_CUDA, as libcuda; -DWITHOUT_GRAPHS leaves a symbol out.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_CUDA
#define NAME(hip, cuda) cuda
#else
#define NAME(hip, cuda) hip
#endif

enum { kFails = 719, kNoMemory = 2, kNoDevice = 100 };

static int allocations = 0;  // held now
int fake_held(void) { return allocations; }

static int fails(const char* name) {
    static int calls = 0;
    const char* plan = getenv("FAKE_FAIL");
    const size_t n = strlen(name);
    if (!plan || strncmp(plan, name, n) || plan[n] != ':') return 0;
    return ++calls == atoi(plan + n + 1);
}
#define CALL(name) \
    if (fails(name)) return kFails

int NAME(hipInit, cuInit)(unsigned flags) { return (void)flags, 0; }
int NAME(hipGetDeviceCount, cuDeviceGetCount)(int* n) {
    const char* devices = getenv("FAKE_DEVICES");
    *n = devices ? atoi(devices) : 1;
    return *n ? 0 : kNoDevice;
}
int NAME(hipDeviceGetName, cuDeviceGetName)(char* name, int n, int device) { return snprintf(name, (size_t)n, "Fake %d", device), 0; }
int NAME(hipDeviceGetAttribute, cuDeviceGetAttribute)(int* value, int attribute, int device) { return (void)attribute, (void)device, *value = 64, 0; }
int NAME(hipMemGetInfo, cuMemGetInfo_v2)(size_t* free, size_t* total) {
    const char* bytes = getenv("FAKE_BYTES");
    *total = bytes ? strtoull(bytes, NULL, 10) : (size_t)1 << 34;
    *free = *total;
    return 0;
}
int NAME(hipMalloc, cuMemAlloc_v2)(void** at, size_t n) {
    if (fails("hipMalloc")) return kNoMemory;
    allocations++;
    return *at = malloc(n), 0;
}
int NAME(hipFree, cuMemFree_v2)(void* at) { return allocations--, free(at), 0; }
int NAME(hipHostMalloc, cuMemHostAlloc)(void** at, size_t n, unsigned flags) { return (void)flags, allocations++, *at = malloc(n), 0; }
int NAME(hipHostFree, cuMemFreeHost)(void* at) { return allocations--, free(at), 0; }
int NAME(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)(void* to, const void* from, size_t n, void* s) {
    CALL("hipMemcpyHtoDAsync");
    return (void)s, memcpy(to, from, n), 0;
}
int NAME(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)(void* to, const void* from, size_t n, void* s) { return (void)s, memcpy(to, from, n), 0; }
int NAME(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)(void* to, const void* from, size_t n, void* s) { return (void)s, memcpy(to, from, n), 0; }
int NAME(hipMemsetD8Async, cuMemsetD8Async)(void* at, unsigned char v, size_t n, void* s) { return (void)s, memset(at, v, n), 0; }
int NAME(hipModuleLoadData, cuModuleLoadData)(void** m, const void* image) {
    CALL("hipModuleLoadData");
    return (void)image, *m = (void*)1, 0;
}
int NAME(hipModuleUnload, cuModuleUnload)(void* m) { return (void)m, 0; }
int NAME(hipModuleGetFunction, cuModuleGetFunction)(void** f, void* m, const char* name) { return (void)m, (void)name, *f = (void*)1, 0; }
int NAME(hipModuleLaunchKernel, cuLaunchKernel)(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                                void* stream, void** parameters, void** extra) {
    CALL("hipModuleLaunchKernel");
    return (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)parameters, (void)extra, 0;
}
int NAME(hipStreamCreateWithFlags, cuStreamCreate)(void** s, unsigned flags) {
    CALL("hipStreamCreateWithFlags");
    return (void)flags, allocations++, *s = (void*)1, 0;
}
int NAME(hipStreamDestroy, cuStreamDestroy_v2)(void* s) { return (void)s, allocations--, 0; }
int NAME(hipStreamSynchronize, cuStreamSynchronize)(void* s) {
    CALL("hipStreamSynchronize");
    return (void)s, 0;
}
int NAME(hipStreamBeginCapture, cuStreamBeginCapture_v2)(void* s, int mode) { return (void)s, (void)mode, 0; }
int NAME(hipStreamEndCapture, cuStreamEndCapture)(void* s, void** g) { return (void)s, *g = (void*)1, 0; }
int NAME(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)(void** e, void* g, unsigned long long flags) {
    CALL("hipGraphInstantiateWithFlags");
    return (void)g, (void)flags, allocations++, *e = (void*)1, 0;
}
#ifndef WITHOUT_GRAPHS
int NAME(hipGraphLaunch, cuGraphLaunch)(void* e, void* s) {
    CALL("hipGraphLaunch");
    return (void)e, (void)s, 0;
}
#endif
int NAME(hipGraphExecDestroy, cuGraphExecDestroy)(void* e) { return (void)e, allocations--, 0; }
int NAME(hipGraphDestroy, cuGraphDestroy)(void* g) { return (void)g, 0; }
int NAME(hipEventCreateWithFlags, cuEventCreate)(void** e, unsigned flags) { return (void)flags, allocations++, *e = (void*)1, 0; }
int NAME(hipEventDestroy, cuEventDestroy_v2)(void* e) { return (void)e, allocations--, 0; }
int NAME(hipEventRecord, cuEventRecord)(void* e, void* s) { return (void)e, (void)s, 0; }
int NAME(hipEventSynchronize, cuEventSynchronize)(void* e) { return (void)e, 0; }
#ifdef FAKE_CUDA
int cuDevicePrimaryCtxRetain(void** context, int device) { return (void)device, *context = (void*)1, 0; }
int cuCtxSetCurrent(void* context) { return (void)context, 0; }
int cuGetErrorString(int status, const char** text) { return (void)status, *text = "fake fault", 0; }
#else
int hipSetDevice(int device) { return (void)device, 0; }
const char* hipGetErrorString(int status) { return (void)status, "fake fault"; }
#endif
