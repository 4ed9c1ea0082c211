// Shorthands for the forward passes.
#pragma once
#include "ops/memory.h"

namespace lucebox::model {

inline void matmul(ops::Backend& backend, const ops::Acts& acts, int rows, std::initializer_list<std::pair<const ops::Weight*, float*>> outputs,
                   bool residual = false) {
    ops::Matmul op{.acts = acts, .rows = rows, .weights = 0, .weight = {}, .y = {}, .residual = residual};
    for (const auto& [weight, y] : outputs) op.weight[op.weights] = *weight, op.y[op.weights++] = y;
    backend.matmul(op);
}

inline ops::Acts take_acts(ops::Memory& memory, const std::string& name, int columns, int max_rows) {
    const uint64_t n = static_cast<uint64_t>(max_rows) * static_cast<uint64_t>(columns);
    ops::Acts acts{columns, nullptr, nullptr, nullptr, nullptr};
    acts.x = memory.take<float>(name + ", f32", n);
    acts.q = memory.take<int8_t>(name + ", int8", n);
    acts.d = memory.take<float>(name + ", scales", n / 32);
    acts.sum = memory.take<int32_t>(name + ", sums", n / 16);
    return acts;
}

}  // namespace lucebox::model
