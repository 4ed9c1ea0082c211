// A GPU driver that is none: memory is the host's, kernels do nothing. FAKE_DEVICES is the number of devices; FAKE_FAIL=name:n makes
// the n-th call of a function fail, name being HIP's. FAKE_RECORD=file: allocations, uploads and launches are written there, one a line (launch:
// kernel, grid, threads, shared bytes, then the argument's 8-byte words in hexadecimal), and no memory is touched; FAKE_KERNELS=file names the kernels that there are and the
// bytes of their argument. Compiled as libamdhip64 or, with -DFAKE_CUDA, as libcuda; -DWITHOUT_GRAPHS leaves a symbol out.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_CUDA
#define NAME(hip, cuda) cuda
#else
#define NAME(hip, cuda) hip
#endif

enum { kFails = 719, kNoMemory = 2, kNoDevice = 100, kNoSuchKernel = 500 };

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

static FILE* record(void) {
    static FILE* file = NULL;
    const char* path = getenv("FAKE_RECORD");
    if (path && !file) file = fopen(path, "w");
    return file;
}
struct Kernel {
    char name[96];
    int bytes;
};
static int fits(const char* pattern, const char* name) {  // a pattern may end with a star
    const size_t n = strlen(pattern);
    return n && pattern[n - 1] == '*' ? !strncmp(pattern, name, n - 1) : !strcmp(pattern, name);
}
static struct Kernel* find(const char* name) {  // of the list the last that fits; lives as long as the process, like a driver's
    FILE* list = fopen(getenv("FAKE_KERNELS"), "r");
    struct Kernel line, *found = NULL;
    while (list && fscanf(list, "%95s %d", line.name, &line.bytes) == 2) {
        if (!fits(line.name, name)) continue;
        if (!found) found = malloc(sizeof *found);
        snprintf(found->name, sizeof found->name, "%s", name);
        found->bytes = line.bytes;
    }
    if (list) fclose(list);
    return found;
}

int NAME(hipInit, cuInit)(unsigned flags) { return (void)flags, 0; }
int NAME(hipGetDeviceCount, cuDeviceGetCount)(int* n) {
    const char* devices = getenv("FAKE_DEVICES");
    *n = devices ? atoi(devices) : 1;
    return *n ? 0 : kNoDevice;
}
int NAME(hipDeviceGetName, cuDeviceGetName)(char* name, int n, int device) { return snprintf(name, (size_t)n, "Fake %d", device), 0; }
int NAME(hipDeviceGetAttribute, cuDeviceGetAttribute)(int* value, int attribute, int device) {
    const int shared_bytes = 97;  // CUDA's number for the workgroup memory that a launch may take
    const char* units = getenv("FAKE_UNITS");
    *value = attribute == shared_bytes ? 227 << 10 : units ? atoi(units) : 64;
    return (void)device, 0;
}
int NAME(hipMemGetInfo, cuMemGetInfo_v2)(size_t* free, size_t* total) {
    const char* bytes = getenv("FAKE_BYTES");
    *total = bytes ? strtoull(bytes, NULL, 10) : (size_t)1 << 34;
    *free = *total;
    return 0;
}
int NAME(hipMalloc, cuMemAlloc_v2)(void** at, size_t n) {
    if (fails("hipMalloc")) return kNoMemory;
    allocations++;
    *at = malloc(n);
    if (record()) fprintf(record(), "allocate %zx %zu\n", (size_t)*at, n);
    return 0;
}
int NAME(hipFree, cuMemFree_v2)(void* at) { return allocations--, free(at), 0; }
int NAME(hipHostMalloc, cuMemHostAlloc)(void** at, size_t n, unsigned flags) { return (void)flags, allocations++, *at = malloc(n), 0; }
int NAME(hipHostFree, cuMemFreeHost)(void* at) { return allocations--, free(at), 0; }
int NAME(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)(void* to, const void* from, size_t n, void* s) {
    CALL("hipMemcpyHtoDAsync");
    if (record()) return (void)s, fprintf(record(), "upload %zx %zu\n", (size_t)to, n) < 0;
    return (void)s, memcpy(to, from, n), 0;
}
int NAME(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)(void* to, const void* from, size_t n, void* s) {
    return (void)s, record() ? memset(to, 0, n) : memcpy(to, from, n), 0;
}
int NAME(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)(void* to, const void* from, size_t n, void* s) {
    return (void)s, record() ? to : memcpy(to, from, n), 0;
}
int NAME(hipMemsetD8Async, cuMemsetD8Async)(void* at, unsigned char v, size_t n, void* s) { return (void)s, record() ? at : memset(at, v, n), 0; }
int cuFuncGetAttribute(int* value, int attribute, void* function) { return (void)function, (void)attribute, *value = 0, 0; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return (void)function, (void)attribute, (void)value, 0; }
int NAME(hipModuleLoadData, cuModuleLoadData)(void** m, const void* image) {
    CALL("hipModuleLoadData");
    return (void)image, *m = (void*)1, 0;
}
int NAME(hipModuleUnload, cuModuleUnload)(void* m) { return (void)m, 0; }
int NAME(hipModuleGetFunction, cuModuleGetFunction)(void** f, void* m, const char* name) {
    *f = getenv("FAKE_KERNELS") ? (void*)find(name) : (void*)1;
    return (void)m, *f ? 0 : kNoSuchKernel;
}
int NAME(hipModuleLaunchKernel, cuLaunchKernel)(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                                void* stream, void** parameters, void** extra) {
    CALL("hipModuleLaunchKernel");
    (void)by, (void)bz, (void)stream, (void)extra;
    if (!record() || !getenv("FAKE_KERNELS")) return 0;
    const struct Kernel* kernel = f;
    fprintf(record(), "launch %s %u %u %u %u %u", kernel->name, gx, gy, gz, bx, shared);
    for (int at = 0; at + 8 <= kernel->bytes; at += 8) {
        size_t word;
        memcpy(&word, (const char*)parameters[0] + at, 8);
        fprintf(record(), " %zx", word);
    }
    return fprintf(record(), "\n") < 0;
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
