#include "cpu/threads.h"
#include "ops/float_mode.h"
#include <algorithm>
#include <fstream>
#include <sched.h>
#include <set>
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lucebox::cpu {

namespace {
constexpr int kSpins = 20000;  // about 0.2 ms: longer than the gap between two ops, shorter than a scheduler's slice

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}
}  // namespace

ThreadPool::ThreadPool(int threads) {
    for (int t = 1; t < threads; t++) workers_.emplace_back([this, t] { work(t); });
}

ThreadPool::~ThreadPool() {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_tasks(int thread) {
    for (int i; (i = left_.fetch_sub(1, std::memory_order_acquire) - 1) >= 0;) {
        call_(self_, i, thread);
        done_.fetch_add(1, std::memory_order_release);
    }
}

void ThreadPool::run_all(int tasks, Call call, const void* self) {
    call_ = call, self_ = self;
    done_.store(0, std::memory_order_relaxed);
    left_.store(tasks, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    take_tasks(0);
    for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; spins++)
        if (spins < kSpins) relax();
        else std::this_thread::yield();
}

void ThreadPool::work(int thread) {
    const ops::FloatMode mode;
    uint32_t seen = 0;
    while (true) {
        for (int spins = 0; generation_.load(std::memory_order_acquire) == seen;) {
            if (++spins < kSpins) relax();
            else generation_.wait(seen, std::memory_order_acquire);
        }
        seen = generation_.load(std::memory_order_acquire);
        if (stop_) return;
        take_tasks(thread);
    }
}

int physical_cores() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::max(1u, std::thread::hardware_concurrency());
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
        std::string line;
        if (!std::getline(siblings, line)) line = std::to_string(cpu);
        cores.insert(line);
    }
    return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace lucebox::cpu
