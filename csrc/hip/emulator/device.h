// The emulator as a device. Memory is the host's; a graph is a list of closures.
#pragma once
#include "hip/emulator/work_group.h"
#include "hip/runtime/device.h"
#include <functional>
#include <vector>

namespace lucebox::hip {

class EmulatedDevice final : public Device {
public:
    explicit EmulatedDevice(Arch arch);
    ~EmulatedDevice() override;

    // Of the work-items of a workgroup, for the launches from now on.
    void set_order(emulator::Order order) { order_ = order; }
    // Kernels of tests, beside the product's.
    void add_kernel(const emulator::KernelEntry& entry);

    std::string name() const override;
    Arch arch() const override { return arch_; }
    uint64_t free_bytes() const override;
    uint64_t total_bytes() const override;
    int shared_bytes() const override { return static_cast<int>(arch_ == Arch::kNvidia ? emulator::kSharedBytes : 64 * 1024); }
    int compute_units() const override { return 4; }
    void* allocate(uint64_t bytes) override;
    void upload(void* to, const void* host, uint64_t bytes) override;
    void download(void* host, const void* from, uint64_t bytes) override;
    void copy(void* to, const void* from, uint64_t bytes) override;
    void clear(void* at, uint64_t bytes) override;
    void synchronize() override {}
    const Kernel* find(const std::string& name) override;
    void launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t args_bytes) override;
    void begin_capture() override;
    std::shared_ptr<Graph> end_capture() override;
    void replay(const Graph& graph) override;

private:
    using Nodes = std::vector<std::function<void()>>;
    void submit(std::function<void()> work);

    Arch arch_;
    emulator::Order order_ = emulator::Order::kForward;
    std::vector<std::unique_ptr<emulator::KernelEntry>> kernels_;
    std::vector<std::pair<void*, uint64_t>> memory_;
    std::shared_ptr<Nodes> capture_;
};

// "emulated" (gfx12), "emulated:gfx12", "emulated:gfx11", "emulated:gfx9", "emulated:nvidia"; throws Error(kRequest) that lists the names.
std::unique_ptr<EmulatedDevice> open_emulated(const std::string& name);

}  // namespace lucebox::hip
