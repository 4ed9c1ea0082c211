// Where kernels run: the emulator, or a GPU's driver opened at run time. The HIP backend is written over this interface once.
// Calls go in order on one stream; only download and synchronize wait. Failures throw Error(kDevice); a failed device stays failed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace lucebox::hip {

// Which fragment maps the weights and activations are laid out for.
enum class Arch { kGfx12, kGfx11, kGfx9, kNvidia };

struct Kernel;  // the device's own handle
struct Graph {  // a device derives its own
    virtual ~Graph() = default;
};

struct Dim {
    uint32_t x = 1, y = 1, z = 1;
};

class Device {
public:
    virtual ~Device() = default;
    virtual std::string name() const = 0;   // "NVIDIA H200", "emulated gfx12"
    virtual Arch arch() const = 0;
    virtual uint64_t free_bytes() const = 0;
    virtual uint64_t total_bytes() const = 0;
    virtual int shared_bytes() const = 0;   // of workgroup memory that a launch may take
    virtual int compute_units() const = 0;  // multiprocessors or compute units

    // Zeroed; released with the device. Throws Error(kOutOfMemory) with the facts asked and free.
    virtual void* allocate(uint64_t bytes) = 0;
    virtual void upload(void* to, const void* host, uint64_t bytes) = 0;  // the host's bytes may be reused on return
    virtual void download(void* host, const void* from, uint64_t bytes) = 0;
    virtual void copy(void* to, const void* from, uint64_t bytes) = 0;
    virtual void clear(void* at, uint64_t bytes) = 0;
    virtual void synchronize() = 0;

    // A kernel of the device's module by its stable name; null if it has none of that name.
    virtual const Kernel* find(const std::string& name) = 0;
    // Kernels take one struct by value. threads is a multiple of 32.
    virtual void launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t args_bytes) = 0;

    // Launches, copies and clears between begin and end are recorded, not run. The emulator records closures, a driver its own graph.
    virtual void begin_capture() = 0;
    virtual std::shared_ptr<Graph> end_capture() = 0;
    virtual void replay(const Graph& graph) = 0;
};

}  // namespace lucebox::hip
