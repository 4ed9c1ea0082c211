// A pool that runs the tasks of one op at a time. Idle workers sleep; between the ops of a step they spin briefly.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace lucebox::cpu {

class ThreadPool {
public:
    explicit ThreadPool(int threads);  // the caller's included; at least 1
    ~ThreadPool();
    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls task(i, thread) for every i in 0 .. tasks - 1, in any order, and returns when all are done. Tasks do not throw.
    template <class Task> void run(int tasks, const Task& task) {
        if (workers_.empty() || tasks <= 1) {
            for (int i = 0; i < tasks; i++) task(i, 0);
            return;
        }
        run_all(tasks, [](const void* self, int i, int thread) { (*static_cast<const Task*>(self))(i, thread); }, &task);
    }

private:
    using Call = void (*)(const void* self, int i, int thread);
    void run_all(int tasks, Call call, const void* self);
    void take_tasks(int thread);
    void work(int thread);

    std::vector<std::thread> workers_;
    std::atomic<uint32_t> generation_{0};
    std::atomic<int> left_{0}, done_{0};
    std::atomic<bool> stop_{false};
    Call call_ = nullptr;
    const void* self_ = nullptr;
};

// Physical cores this process may use, for the default number of threads.
int physical_cores();

}  // namespace lucebox::cpu
