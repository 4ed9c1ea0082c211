// How a step's launches reach the device: one by one (direct), captured once and replayed (graph), or captured as a chain of graphs of
// limited size (split: graphs of more than about 200 nodes have replayed stale pointers on gfx1201, ROCm/hip#3887). One code path, same bits.
#pragma once
#include "hip/runtime/device.h"
#include <functional>
#include <map>
#include <vector>

namespace lucebox::hip {

enum class LaunchMode { kDirect, kGraph, kSplit };
inline constexpr int kSplitNodes = 128;

const char* to_string(LaunchMode mode);
// "auto" or a mode's name; auto is split on gfx12, until graph is proved there, and graph elsewhere. Throws Error(kRequest).
LaunchMode choose_launch_mode(const std::string& name, Arch arch);

class Steps {
public:
    Steps(Device& device, LaunchMode mode, int nodes_a_graph = kSplitNodes) : device_(device), mode_(mode), limit_(nodes_a_graph) {}

    LaunchMode mode() const { return mode_; }
    // Every launch of a step goes through this.
    void launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t args_bytes);
    // Runs the launches that `step` makes. Steps of equal shape make equal launches: the first is captured, later ones are replays.
    void run(const std::vector<int>& shape, const std::function<void()>& step);
    // Graphs captured so far, and the nodes of the last step.
    size_t captured() const { return graphs_.size(); }
    int nodes() const { return nodes_; }

private:
    using Chain = std::vector<std::shared_ptr<Graph>>;

    Device& device_;
    LaunchMode mode_;
    int limit_;
    int nodes_ = 0, in_graph_ = 0;
    bool capturing_ = false;
    Chain open_;
    std::map<std::vector<int>, Chain> graphs_;
};

}  // namespace lucebox::hip
