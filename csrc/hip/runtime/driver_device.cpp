#include "hip/runtime/driver_device.h"
#include "error.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace lucebox::hip {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kStagingBytes = 8 << 20;
constexpr size_t kStagingBuffers = 4;         // uploads overlap with the host's copies
constexpr unsigned kNonBlocking = 1, kDisableTiming = 2;
constexpr int kThreadLocal = 1;               // capture mode

// The same numbers in both vendors' enumerations would be luck; these are HIP's and CUDA's "multiprocessor count".
constexpr int kHipMultiprocessors = 63, kCudaMultiprocessors = 16;
constexpr int kHipSharedBytes = 64 << 10, kCudaSharedBytes = 97;  // of AMD's chips; CUDA's attribute "shared memory a block, opted in"

Arch arch_of(const std::string& target) {
    if (target.rfind("gfx12", 0) == 0) return Arch::kGfx12;
    if (target.rfind("gfx11", 0) == 0) return Arch::kGfx11;
    return Arch::kGfx9;
}

struct DriverGraph final : Graph {
    DriverGraph(const Driver& driver, void* executable) : driver(driver), executable(executable) {}
    ~DriverGraph() override { driver.graph_exec_destroy(executable); }

    const Driver& driver;
    void* executable;
};

}  // namespace

DriverDevice::DriverDevice(Vendor vendor, int index, const std::string& kernels)
    : driver_(vendor), index_(index), shared_bytes_(kHipSharedBytes) {
    LUCE_CHECK(index >= 0 && index < driver_.devices(), kDevice, "device ", index, " was asked for; ", driver_.library(), " reports ", driver_.devices());
    try {
        driver_.use(index_);
        name_ = driver_.device_text(index_);
        driver_.check(driver_.device_attribute(&compute_units_, vendor == Vendor::kHip ? kHipMultiprocessors : kCudaMultiprocessors, index_), "multiprocessor count");
        if (vendor == Vendor::kCuda) driver_.check(driver_.device_attribute(&shared_bytes_, kCudaSharedBytes, index_), "workgroup memory");
        load_module(kernels);
        make_stream();
    } catch (...) {
        release();
        throw;
    }
}

DriverDevice::~DriverDevice() { release(); }

// Frees whatever was taken; a driver that has failed may refuse, and nothing depends on it then.
void DriverDevice::release() {
    try {
        driver_.use(index_);
    } catch (const Error&) {
        return;
    }
    if (stream_) driver_.stream_synchronize(stream_);
    for (void* at : memory_) driver_.mem_free(at);
    for (const Staging& s : staging_) {
        if (s.event) driver_.event_destroy(s.event);
        if (s.memory) driver_.host_free(s.memory);
    }
    if (stream_) driver_.stream_destroy(stream_);
    if (module_) driver_.module_unload(module_);
}

void DriverDevice::make_stream() {
    driver_.check(driver_.stream_create(&stream_, kNonBlocking), "create stream");
    staging_.resize(kStagingBuffers);
    for (Staging& s : staging_) {
        driver_.check(driver_.host_alloc(&s.memory, kStagingBytes, 0), "allocate pinned memory");
        driver_.check(driver_.event_create(&s.event, kDisableTiming), "create event");
    }
}

// The module of a code object, or null if the driver refuses it (another chip's).
void* DriverDevice::try_image(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> image((std::istreambuf_iterator<char>(in)), {});
    void* module = nullptr;
    return !image.empty() && driver_.module_load(&module, image.data()) == 0 ? module : nullptr;
}

// The driver knows which code object its card runs: the first that it takes is the one.
void DriverDevice::load_module(const std::string& folder) {
    const std::string ending = driver_.vendor() == Vendor::kHip ? ".hsaco" : ".fatbin";
    std::vector<fs::path> images;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
        if (entry.path().extension() == ending) images.push_back(entry.path());
    std::sort(images.begin(), images.end());
    std::string tried;
    for (const fs::path& image : images) {
        tried += (tried.empty() ? "" : ", ") + image.filename().string();
        if (!(module_ = try_image(image.string()))) continue;
        arch_ = driver_.vendor() == Vendor::kHip ? arch_of(image.stem().string()) : Arch::kNvidia;
        return;
    }
    throw Error(Kind::kDevice, join(name_, ": no kernels for this card in this build (", tried.empty() ? "none were built" : "tried " + tried,
                                    "); rebuild with LUCEBOX_", driver_.vendor() == Vendor::kHip ? "HIP" : "CUDA", "_ARCHITECTURES set, see docs/amd.md"));
}

uint64_t DriverDevice::free_bytes() const {
    size_t free = 0, total = 0;
    driver_.use(index_);
    driver_.check(driver_.mem_info(&free, &total), "memory info");
    return free;
}

uint64_t DriverDevice::total_bytes() const {
    size_t free = 0, total = 0;
    driver_.use(index_);
    driver_.check(driver_.mem_info(&free, &total), "memory info");
    return total;
}

void* DriverDevice::allocate(uint64_t bytes) {
    if (bytes == 0) return nullptr;
    driver_.use(index_);
    void* at = nullptr;
    if (driver_.mem_alloc(&at, bytes) != 0)
        throw Error(Kind::kOutOfMemory, join(name_, " refused ", bytes, " bytes; ", free_bytes(), " are free"),
                    {{"asked", static_cast<int64_t>(bytes)}, {"free", static_cast<int64_t>(free_bytes())}});
    memory_.push_back(at);
    clear(at, bytes);
    return at;
}

void DriverDevice::upload(void* to, const void* host, uint64_t bytes) {
    driver_.use(index_);
    for (uint64_t done = 0; done < bytes; done += kStagingBytes) {
        Staging& s = staging_[next_staging_++ % kStagingBuffers];
        const uint64_t part = std::min(kStagingBytes, bytes - done);
        driver_.check(driver_.event_synchronize(s.event), "wait for an upload");
        memcpy(s.memory, static_cast<const char*>(host) + done, part);
        driver_.check(driver_.upload(static_cast<char*>(to) + done, s.memory, part, stream_), "upload");
        driver_.check(driver_.event_record(s.event, stream_), "record event");
    }
}

void DriverDevice::download(void* host, const void* from, uint64_t bytes) {
    driver_.use(index_);
    driver_.check(driver_.download(host, from, bytes, stream_), "download");
    synchronize();
}

void DriverDevice::copy(void* to, const void* from, uint64_t bytes) {
    driver_.use(index_);
    driver_.check(driver_.copy(to, from, bytes, stream_), "copy");
}

void DriverDevice::clear(void* at, uint64_t bytes) {
    driver_.use(index_);
    driver_.check(driver_.fill(at, 0, bytes, stream_), "clear");
}

void DriverDevice::synchronize() {
    driver_.use(index_);
    driver_.check(driver_.stream_synchronize(stream_), "synchronise");
}

const Kernel* DriverDevice::find(const std::string& name) {
    const auto known = functions_.find(name);
    if (known != functions_.end()) return static_cast<const Kernel*>(known->second);
    driver_.use(index_);
    void* function = nullptr;
    if (driver_.module_function(&function, module_, name.c_str()) != 0) function = nullptr;
    if (function && driver_.vendor() == Vendor::kCuda) driver_.allow_shared_bytes(function, shared_bytes_);
    functions_[name] = function;
    return static_cast<const Kernel*>(function);
}

void DriverDevice::launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t) {
    driver_.use(index_);
    void* parameters[] = {const_cast<void*>(args)};
    void* function = const_cast<void*>(static_cast<const void*>(kernel));
    driver_.check(driver_.launch(function, grid.x, grid.y, grid.z, threads, 1, 1, shared_bytes, stream_, parameters, nullptr), "launch");
}

void DriverDevice::begin_capture() {
    driver_.use(index_);
    driver_.check(driver_.capture_begin(stream_, kThreadLocal), "begin capture");
}

std::shared_ptr<Graph> DriverDevice::end_capture() {
    driver_.use(index_);
    void *graph = nullptr, *executable = nullptr;
    driver_.check(driver_.capture_end(stream_, &graph), "end capture");
    const int status = driver_.graph_instantiate(&executable, graph, 0);
    driver_.graph_destroy(graph);
    driver_.check(status, "instantiate graph");
    return std::make_shared<DriverGraph>(driver_, executable);
}

void DriverDevice::replay(const Graph& graph) {
    driver_.use(index_);
    driver_.check(driver_.graph_launch(static_cast<const DriverGraph&>(graph).executable, stream_), "launch graph");
}

}  // namespace lucebox::hip
