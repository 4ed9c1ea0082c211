// Looks up tensors of a file, checks shape and type, and remembers which were asked for.
#pragma once
#include "gguf/reader.h"
#include <set>

namespace lucebox::model {

class Finder {
public:
    explicit Finder(const gguf::File& file) : file_(file) {}

    // A tensor of these dimensions, the first the length of a row. matrix: of any type that the ops multiply with, else f32.
    // Throws Error(kGGUF) that names it, or Error(kUnsupportedModel) for its type.
    const gguf::Tensor* find(const std::string& name, bool matrix, std::vector<uint64_t> dims);
    const gguf::Tensor* find(const std::string& name, bool matrix, int columns, int rows) {
        return find(name, matrix, {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)});
    }
    bool claimed(std::string_view name) const { return claimed_.contains(name); }

private:
    const gguf::File& file_;
    std::set<std::string_view, std::less<>> claimed_;
};

}  // namespace lucebox::model
