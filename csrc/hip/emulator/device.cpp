#include "hip/emulator/device.h"
#include "error.h"
#include "hip/emulator/chips.h"
#include <sys/mman.h>
#include <unistd.h>

namespace lucebox::hip {

namespace {
// A device's handles are its own types behind the interface's opaque ones.
const emulator::KernelEntry* entry_of(const Kernel* kernel) { return reinterpret_cast<const emulator::KernelEntry*>(kernel); }

const char* chip_name(Arch arch) {
    switch (arch) {
        case Arch::kGfx12: return "gfx12";
        case Arch::kGfx11: return "gfx11";
        case Arch::kGfx9: return "gfx9";
        default: return "nvidia";
    }
}
const emulator::KernelTable& chip_kernels(Arch arch) {
    switch (arch) {
        case Arch::kGfx12: return emulator::kernels_gfx12();
        case Arch::kGfx11: return emulator::kernels_gfx11();
        case Arch::kGfx9: return emulator::kernels_gfx9();
        default: return emulator::kernels_nvidia();
    }
}
uint64_t pages(int what) { return static_cast<uint64_t>(sysconf(what)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }
}  // namespace

EmulatedDevice::EmulatedDevice(Arch arch) : arch_(arch) {
    for (const emulator::KernelEntry& entry : chip_kernels(arch)) add_kernel(entry);
}

EmulatedDevice::~EmulatedDevice() {
    for (const auto& [at, bytes] : memory_) munmap(at, bytes);
}

void EmulatedDevice::add_kernel(const emulator::KernelEntry& entry) { kernels_.push_back(std::make_unique<emulator::KernelEntry>(entry)); }

std::string EmulatedDevice::name() const { return std::string("emulated ") + chip_name(arch_); }
uint64_t EmulatedDevice::free_bytes() const { return pages(_SC_AVPHYS_PAGES); }
uint64_t EmulatedDevice::total_bytes() const { return pages(_SC_PHYS_PAGES); }

void* EmulatedDevice::allocate(uint64_t bytes) {
    if (bytes == 0) return nullptr;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        throw Error(Kind::kOutOfMemory, join("the system refused ", bytes, " bytes of memory"),
                    {{"asked", static_cast<int64_t>(bytes)}, {"free", static_cast<int64_t>(free_bytes())}});
    memory_.emplace_back(at, bytes);
    return at;
}

void EmulatedDevice::submit(std::function<void()> work) {
    if (capture_) capture_->push_back(std::move(work));
    else work();
}

void EmulatedDevice::upload(void* to, const void* host, uint64_t bytes) {
    LUCE_CHECK(!capture_, kDevice, "an upload of ", bytes, " bytes while a graph is captured; upload before or after");
    memcpy(to, host, bytes);
}
void EmulatedDevice::download(void* host, const void* from, uint64_t bytes) {
    LUCE_CHECK(!capture_, kDevice, "a download of ", bytes, " bytes while a graph is captured; download after its replay");
    memcpy(host, from, bytes);
}
void EmulatedDevice::copy(void* to, const void* from, uint64_t bytes) {
    submit([=] { memmove(to, from, bytes); });
}
void EmulatedDevice::clear(void* at, uint64_t bytes) {
    submit([=] { memset(at, 0, bytes); });
}

const Kernel* EmulatedDevice::find(const std::string& name) {
    for (const auto& kernel : kernels_)
        if (name == kernel->name) return reinterpret_cast<const Kernel*>(kernel.get());
    return nullptr;
}

void EmulatedDevice::launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t args_bytes) {
    const emulator::KernelEntry* entry = entry_of(kernel);
    LUCE_CHECK(args_bytes == entry->args_bytes, kDevice, entry->name, " is given ", args_bytes, " bytes of arguments; it takes ", entry->args_bytes);
    std::vector<uint8_t> copy(static_cast<const uint8_t*>(args), static_cast<const uint8_t*>(args) + args_bytes);
    submit([this, entry, grid, threads, shared_bytes, copy = std::move(copy)] {
        emulator::run({entry, {grid.x, grid.y, grid.z}, threads, shared_bytes, static_cast<size_t>(this->shared_bytes()), copy.data(), order_});
    });
}

void EmulatedDevice::begin_capture() {
    LUCE_CHECK(!capture_, kDevice, "a graph is being captured already");
    capture_ = std::make_shared<Nodes>();
}

std::shared_ptr<Graph> EmulatedDevice::end_capture() {
    LUCE_CHECK(capture_, kDevice, "no graph is being captured");
    const std::shared_ptr<Nodes> nodes = std::exchange(capture_, nullptr);
    return {nodes, reinterpret_cast<Graph*>(nodes.get())};
}

void EmulatedDevice::replay(const Graph& graph) {
    for (const auto& node : reinterpret_cast<const Nodes&>(graph)) node();
}

std::unique_ptr<EmulatedDevice> open_emulated(const std::string& name) {
    const std::pair<const char*, Arch> names[] = {{"emulated", Arch::kGfx12}, {"emulated:gfx12", Arch::kGfx12}, {"emulated:gfx11", Arch::kGfx11},
                                                  {"emulated:gfx9", Arch::kGfx9}, {"emulated:nvidia", Arch::kNvidia}};
    std::string list;
    for (const auto& [known, arch] : names) {
        if (name == known) return std::make_unique<EmulatedDevice>(arch);
        list += join(" ", known);
    }
    throw Error(Kind::kRequest, join("no emulated device is called ", name, "; there are", list));
}

}  // namespace lucebox::hip
