#include "engine/devices.h"
#include "cpu/backend.h"

namespace lucebox::engine {

std::unique_ptr<ops::Backend> open_backend(const Options& options, bool planning) {
    (void)planning;
    LUCE_CHECK(options.device == "cpu", kRequest, "device is \"", options.device, "\"; it may be cpu");
    return std::make_unique<cpu::CpuBackend>(cpu::choose(options.variant), options.threads);
}

}  // namespace lucebox::engine
