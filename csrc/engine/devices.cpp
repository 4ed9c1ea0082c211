#include "engine/devices.h"
#include "cpu/backend.h"
#include "hip/emulator/device.h"
#include "hip/runtime/backend.h"
#include "hip/runtime/driver_device.h"
#include <charconv>

namespace lucebox::engine {

namespace {

std::unique_ptr<ops::Backend> hip_backend(std::unique_ptr<hip::Device> device, const Options& options) {
    const hip::LaunchMode mode = hip::choose_launch_mode(options.launch, device->arch());
    return std::make_unique<hip::HipBackend>(std::move(device), mode);
}

// "hip:1" is vendor and index; false if the name is of another form.
bool split_name(const std::string& name, std::string& vendor, int& index) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) return false;
    vendor = name.substr(0, colon);
    const char *first = name.data() + colon + 1, *last = name.data() + name.size();
    const auto [end, problem] = std::from_chars(first, last, index);
    return problem == std::errc() && end == last && (vendor == "hip" || vendor == "cuda");
}

}  // namespace

std::unique_ptr<ops::Backend> open_backend(const Options& options, bool planning) {
    const std::string chip = options.variant == "auto" ? "" : ":" + options.variant;
    if (options.device == "cpu") return std::make_unique<cpu::CpuBackend>(cpu::choose(options.variant), options.threads);
    if (options.device == "emulated") return hip_backend(hip::open_emulated("emulated" + chip), options);
    std::string vendor;
    int index = 0;
    LUCE_CHECK(split_name(options.device, vendor, index), kRequest, "device is \"", options.device, "\"; it may be cpu, hip:N, cuda:N or emulated");
    LUCE_CHECK(options.variant == "auto", kRequest, "variant is \"", options.variant, "\"; a GPU has none, its code object is chosen by its driver");
    // Buffers are the same on every chip of a vendor, so a plan needs no card.
    if (planning) return hip_backend(hip::open_emulated(vendor == "hip" ? "emulated:gfx12" : "emulated:nvidia"), options);
    return hip_backend(std::make_unique<hip::DriverDevice>(vendor == "hip" ? hip::Vendor::kHip : hip::Vendor::kCuda, index, options.kernels), options);
}

}  // namespace lucebox::engine
