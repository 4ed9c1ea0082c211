// A GPU through its driver: one stream, pinned staging for uploads, kernels from a code object that travels in the package.
#pragma once
#include "hip/runtime/device.h"
#include "hip/runtime/driver.h"
#include <map>
#include <vector>

namespace lucebox::hip {

class DriverDevice final : public Device {
public:
    // kernels: the folder with gfx….hsaco and lucebox.fatbin. Throws Error(kDevice).
    DriverDevice(Vendor vendor, int index, const std::string& kernels);
    ~DriverDevice() override;

    std::string name() const override { return name_; }
    Arch arch() const override { return arch_; }
    uint64_t free_bytes() const override;
    uint64_t total_bytes() const override;
    int shared_bytes() const override { return shared_bytes_; }
    int compute_units() const override { return compute_units_; }

    void* allocate(uint64_t bytes) override;
    void upload(void* to, const void* host, uint64_t bytes) override;
    void download(void* host, const void* from, uint64_t bytes) override;
    void copy(void* to, const void* from, uint64_t bytes) override;
    void clear(void* at, uint64_t bytes) override;
    void synchronize() override;

    const Kernel* find(const std::string& name) override;
    void launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t args_bytes) override;

    void begin_capture() override;
    std::shared_ptr<Graph> end_capture() override;
    void replay(const Graph& graph) override;

private:
    struct Staging {
        void* memory = nullptr;  // pinned
        void* event = nullptr;   // its last copy is done
    };
    void load_module(const std::string& folder);
    void* try_image(const std::string& path);
    void make_stream();
    void release();

    Driver driver_;
    int index_;
    std::string name_;
    Arch arch_ = Arch::kNvidia;
    int compute_units_ = 0, shared_bytes_;
    void *stream_ = nullptr, *module_ = nullptr;
    std::vector<Staging> staging_;
    size_t next_staging_ = 0;
    std::vector<void*> memory_;
    std::map<std::string, void*> functions_;
};

}  // namespace lucebox::hip
