#include "hip/runtime/steps.h"
#include "error.h"

namespace lucebox::hip {

const char* to_string(LaunchMode mode) {
    return mode == LaunchMode::kDirect ? "direct" : mode == LaunchMode::kGraph ? "graph" : "split";
}

LaunchMode choose_launch_mode(const std::string& name, Arch arch) {
    if (name == "auto") return arch == Arch::kGfx12 ? LaunchMode::kSplit : LaunchMode::kGraph;
    for (LaunchMode mode : {LaunchMode::kDirect, LaunchMode::kGraph, LaunchMode::kSplit})
        if (name == to_string(mode)) return mode;
    throw Error(Kind::kRequest, join("launch is \"", name, "\"; it may be auto, graph, split or direct"));
}

void Steps::launch(const Kernel* kernel, Dim grid, uint32_t threads, uint32_t shared_bytes, const void* args, uint32_t args_bytes) {
    if (capturing_ && mode_ == LaunchMode::kSplit && in_graph_ == limit_) {
        open_.push_back(device_.end_capture());
        device_.begin_capture();
        in_graph_ = 0;
    }
    nodes_++, in_graph_++;
    device_.launch(kernel, grid, threads, shared_bytes, args, args_bytes);
}

void Steps::run(const std::vector<int>& shape, const std::function<void()>& step) {
    if (capturing_) return step();  // a part of the step that is being captured
    if (mode_ == LaunchMode::kDirect) {
        nodes_ = 0;
        return step();
    }
    auto known = graphs_.find(shape);
    if (known == graphs_.end()) {
        nodes_ = in_graph_ = 0;
        open_.clear();
        device_.begin_capture();
        capturing_ = true;
        try {
            step();
        } catch (...) {  // close the capture, so that the stream can be used and freed
            capturing_ = false;
            try {
                device_.end_capture();
            } catch (const Error&) {  // the step's own fault is the one to report
            }
            throw;
        }
        capturing_ = false;
        open_.push_back(device_.end_capture());
        known = graphs_.emplace(shape, std::move(open_)).first;
    }
    for (const auto& graph : known->second) device_.replay(*graph);
}

}  // namespace lucebox::hip
