#include "cpu/backend.h"
#include "error.h"
#include <fstream>
#include <optional>
#include <sys/mman.h>

namespace lucebox::cpu {

namespace {
uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
uint64_t delta_rows(const ops::Limits& limits) { return static_cast<uint64_t>(limits.max_rows) + static_cast<uint64_t>(limits.slots) * ops::kMaxPending; }
uint64_t conv_bytes(const ops::Limits& l) { return aligned(delta_rows(l) * static_cast<uint64_t>(2 * l.key_heads + l.value_heads) * ops::kHeadDim * 4); }
uint64_t gate_bytes(const ops::Limits& l) { return aligned(delta_rows(l) * 2 * static_cast<uint64_t>(l.value_heads) * 4); }
std::optional<uint64_t> read_number(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    if (!std::getline(in, line) || line.empty() || line[0] < '0' || line[0] > '9') return std::nullopt;
    return std::stoull(line);
}

}  // namespace

// What the system calls available, or less under a control group's limit.
uint64_t CpuBackend::free_bytes() const {
    uint64_t available = UINT64_MAX;
    std::ifstream meminfo("/proc/meminfo");
    const std::string key = "MemAvailable:";
    for (std::string line; std::getline(meminfo, line);)
        if (line.rfind(key, 0) == 0) available = std::stoull(line.substr(key.size())) * 1024;
    // A container's own limit; absent or "max" without one.
    const auto limit = read_number("/sys/fs/cgroup/memory.max"), used = read_number("/sys/fs/cgroup/memory.current");
    if (limit && used) available = std::min(available, *limit > *used ? *limit - *used : 0);
    return available;
}

CpuBackend::~CpuBackend() {
    for (const auto& [at, bytes] : memory_) munmap(at, bytes);
}

void* CpuBackend::allocate(uint64_t bytes) {
    if (bytes == 0) return nullptr;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LUCE_CHECK(at != MAP_FAILED, kOutOfMemory, "the system refused ", bytes, " bytes of memory");
    madvise(at, bytes, MADV_HUGEPAGE);  // fewer page walks while weights stream; a refusal costs speed only
    memory_.emplace_back(at, bytes);
    return at;
}

ops::Weight CpuBackend::prepare(const gguf::Tensor& tensor, uint8_t* packed) {
    ops::Weight w{tensor.type, static_cast<int>(tensor.rows()), static_cast<int>(tensor.columns()), tensor.data, packed};
    if (packed) {
        constexpr int kRows = 256;
        pool_.run((w.rows + kRows - 1) / kRows, [&](int task, int) { kernels_.pack(w, task * kRows, std::min(w.rows, (task + 1) * kRows), packed); });
    }
    return w;
}

uint64_t CpuBackend::scratch_bytes(const ops::Limits& limits) const {
    return conv_bytes(limits) + gate_bytes(limits) + static_cast<uint64_t>(threads()) * ops::kHeadDim * ops::kHeadDim * 4;
}

void CpuBackend::use_scratch(const ops::Limits& limits, void* scratch) {
    uint8_t* at = static_cast<uint8_t*>(scratch);
    conv_out_ = reinterpret_cast<float*>(at);
    gates_ = reinterpret_cast<float*>(at + conv_bytes(limits));
    states_ = reinterpret_cast<float*>(at + conv_bytes(limits) + gate_bytes(limits));
    delta_rows_.reserve(delta_rows(limits));
}

}  // namespace lucebox::cpu
