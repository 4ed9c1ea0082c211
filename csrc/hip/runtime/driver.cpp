#include "hip/runtime/driver.h"
#include "error.h"
#include <cstdlib>
#include <dlfcn.h>

namespace lucebox::hip {

namespace {
constexpr const char* kHipLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
constexpr const char* kCudaLibraries[] = {"libcuda.so.1"};
constexpr const char* kHipHelp = "install ROCm's HIP runtime (package hip-runtime-amd of ROCm 6 or 7)";
constexpr const char* kCudaHelp = "install NVIDIA's driver";

const char* help(Vendor vendor) { return vendor == Vendor::kHip ? kHipHelp : kCudaHelp; }
}  // namespace

void Driver::open_library() {
    const char* other = std::getenv(vendor_ == Vendor::kHip ? "LUCEBOX_HIP_LIBRARY" : "LUCEBOX_CUDA_LIBRARY");
    std::vector<std::string> names;
    if (other && *other) names = {other};
    else if (vendor_ == Vendor::kHip) names.assign(std::begin(kHipLibraries), std::end(kHipLibraries));
    else names.assign(std::begin(kCudaLibraries), std::end(kCudaLibraries));
    for (const std::string& name : names)
        if ((handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))) {
            library_ = name;
            return;
        }
    throw Error(Kind::kDevice, join("no ", names.front(), " was found; ", help(vendor_)), {{"missing", names.front()}});
}

void* Driver::symbol(const char* name) const {
    void* at = dlsym(handle_, name);
    if (!at) throw Error(Kind::kDevice, join(library_, " has no function ", name, "; it is too old: ", help(vendor_)), {{"missing", std::string(name)}});
    return at;
}

Driver::Driver(Vendor vendor) : vendor_(vendor) {
    open_library();
    const bool hip = vendor == Vendor::kHip;
#define LUCE_RESOLVE(name, arguments, hip_name, cuda_name) name = reinterpret_cast<int(*) arguments>(symbol(hip ? hip_name : cuda_name));
    LUCE_DRIVER_FUNCTIONS(LUCE_RESOLVE)
#undef LUCE_RESOLVE
    if (hip) {
        set_device_ = reinterpret_cast<int (*)(int)>(symbol("hipSetDevice"));
        hip_error_ = reinterpret_cast<const char* (*)(int)>(symbol("hipGetErrorString"));
    } else {
        retain_context_ = reinterpret_cast<int (*)(void**, int)>(symbol("cuDevicePrimaryCtxRetain"));
        set_context_ = reinterpret_cast<int (*)(void*)>(symbol("cuCtxSetCurrent"));
        get_function_attribute_ = reinterpret_cast<int (*)(int*, int, void*)>(symbol("cuFuncGetAttribute"));
        set_function_attribute_ = reinterpret_cast<int (*)(void*, int, int)>(symbol("cuFuncSetAttribute"));
        cuda_error_ = reinterpret_cast<int (*)(int, const char**)>(symbol("cuGetErrorString"));
    }
    if (init(0) != 0 || device_count(&devices_) != 0 || devices_ == 0)
        throw Error(Kind::kDevice, join(library_, " reports no device; is the card's kernel driver loaded and may this user open it (groups render, video)?"));
    contexts_.resize(static_cast<size_t>(devices_));
}

Driver::~Driver() = default;  // the library stays open: drivers do not survive being closed

std::string Driver::device_text(int device) const {
    char name[256] = {};
    check(device_name(name, sizeof name - 1, device), "device name");
    return name;
}

void Driver::use(int device) const {
    if (vendor_ == Vendor::kHip) return check(set_device_(device), "set device");
    void*& context = const_cast<Driver*>(this)->contexts_[static_cast<size_t>(device)];
    if (!context) check(retain_context_(&context, device), "retain context");
    check(set_context_(context), "set context");
}

void Driver::check(int status, const char* what) const {
    if (status == 0) return;
    const char* text = nullptr;
    if (hip_error_) text = hip_error_(status);
    else if (cuda_error_) cuda_error_(status, &text);
    throw Error(Kind::kDevice, join(vendor_ == Vendor::kHip ? "HIP" : "CUDA", ": ", what, " failed with status ", status, " (", text ? text : "unknown", ")"),
                {{"status", int64_t{status}}, {"call", std::string(what)}});
}

void Driver::allow_shared_bytes(void* function, int bytes) const {
    constexpr int kStaticSharedBytes = 1, kMaxDynamicSharedBytes = 8;
    int own = 0;
    check(get_function_attribute_(&own, kStaticSharedBytes, function), "a kernel's workgroup memory");
    check(set_function_attribute_(function, kMaxDynamicSharedBytes, bytes - own), "allow workgroup memory");
}

Probe probe(Vendor vendor) {
    Probe found{vendor, {}, {}, {}};
    try {
        const Driver driver(vendor);
        found.library = driver.library();
        for (int i = 0; i < driver.devices(); i++) found.devices.push_back(driver.device_text(i));
    } catch (const Error& error) {
        found.problem = error.text();
    }
    return found;
}

}  // namespace lucebox::hip
