// Where a model's tensors go; used by the target and by a drafter.
#pragma once
#include "ops/memory.h"
#include <functional>

namespace lucebox::model {

// Gives each tensor of the file its place: matrices mapped or in the backend's own order, vectors copied side by side.
class Loader {
public:
    // what: "" or "drafter's ", in front of the plan's names. progress: called with 0..1 while matrices are prepared.
    Loader(ops::Backend& backend, ops::Memory& memory, const std::function<void(double)>& progress, std::string what = "")
        : backend_(backend), memory_(memory), progress_(progress), what_(std::move(what)) {}

    void matrix(const gguf::Tensor* tensor, ops::Weight& weight) {
        for (const auto& [known, place] : matrices_)
            if (known == tensor) return shared_.push_back({place, &weight});  // a head that is tied to the embedding
        matrices_.push_back({tensor, &weight});
    }
    void vector(const gguf::Tensor* tensor, const float*& pointer) { vectors_.push_back({tensor, &pointer}); }
    void table(const gguf::Tensor* tensor, ops::Weight& weight) {
        if (!backend_.reads_mapped()) return matrix(tensor, weight);
        weight = {tensor->type, static_cast<int>(tensor->rows()), static_cast<int>(tensor->columns()), tensor->data, nullptr};
        mapped_ += tensor->bytes;
    }

    void load() {
        uint64_t packed = 0, floats = 0, done = 0, all = 0;
        for (const auto& [tensor, weight] : matrices_) {
            packed += packed_bytes(*tensor);
            if (packed_bytes(*tensor) == 0) mapped_ += tensor->bytes;
            all += tensor->bytes;
        }
        for (const auto& [tensor, pointer] : vectors_) floats += aligned(tensor->bytes) / sizeof(float);
        memory_.map(what_ + "weights, mapped", mapped_);
        uint8_t* at = memory_.take<uint8_t>(what_ + "weights, repacked", packed);
        float* vector = memory_.take<float>(what_ + "norms and vectors", floats);
        if (memory_.dry()) return;
        for (const auto& [tensor, pointer] : vectors_) {
            backend_.upload(vector, tensor->data, tensor->bytes);
            *pointer = vector;
            vector += aligned(tensor->bytes) / sizeof(float);
        }
        for (const auto& [tensor, weight] : matrices_) {
            const uint64_t bytes = packed_bytes(*tensor);
            *weight = backend_.prepare(*tensor, bytes ? at : nullptr);
            at += bytes, done += tensor->bytes;
            if (progress_) progress_(static_cast<double>(done) / static_cast<double>(all));
        }
        for (const auto& [from, to] : shared_) *to = *from;
    }

private:
    static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
    uint64_t packed_bytes(const gguf::Tensor& t) const { return aligned(backend_.packed_bytes(t.type, t.rows(), t.columns())); }

    ops::Backend& backend_;
    ops::Memory& memory_;
    const std::function<void(double)>& progress_;
    std::string what_;
    uint64_t mapped_ = 0;
    std::vector<std::pair<const gguf::Tensor*, ops::Weight*>> matrices_;
    std::vector<std::pair<const ops::Weight*, ops::Weight*>> shared_;
    std::vector<std::pair<const gguf::Tensor*, const float**>> vectors_;
};

}  // namespace lucebox::model
