// The keys of one architecture, checked as they are read: "PREFIX." is put in front of each.
#pragma once
#include "gguf/reader.h"
#include <cmath>

namespace lucebox::model {

inline constexpr int kMostHidden = 16384, kMostColumns = 262144, kMostHeadDim = 256, kMostHeads = 1024, kMostLayers = 1024;

[[noreturn]] inline void unsupported(const gguf::File& file, const std::string& text) {
    throw Error(Kind::kUnsupportedModel, join(file.path(), ": ", text));
}

class Keys {
public:
    Keys(const gguf::File& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
    int integer(std::string_view key, int most = INT32_MAX) const { return static_cast<int>(file_.integer(name(key), 1, most)); }
    int integer_or(std::string_view key, int otherwise, int least = 1) const {
        return static_cast<int>(file_.find_integer(name(key), least, INT32_MAX).value_or(otherwise));
    }
    float number(std::string_view key) const {
        const auto x = static_cast<float>(file_.number(name(key)));
        if (!(std::isfinite(x) && x > 0)) fail(key, join("is ", x, "; a finite number above 0 is wanted"));
        return x;
    }
    // What the model has is another size than the ops can compute.
    int bounded(std::string_view key, int most, int multiple) const {
        const int x = integer(key);
        if (x <= most && x % multiple == 0) return x;
        const std::string range = multiple == 1 ? join("1 to ", most) : join("multiples of ", multiple, " up to ", most);
        unsupported(file_, join(name(key), " is ", x, "; ", range, " are supported"));
    }
    void exactly(std::string_view key, int wanted) const {
        if (const int x = integer(key); x != wanted) unsupported(file_, join(name(key), " is ", x, "; only ", wanted, " is supported"));
    }
    bool has(std::string_view key) const { return file_.find(name(key)) != nullptr; }
    [[noreturn]] void fail(std::string_view key, const std::string& text) const {
        const gguf::Value* value = file_.find(name(key));
        file_.fail(name(key), value ? value->offset : 0, text);
    }
    std::string name(std::string_view key) const { return join(prefix_, ".", key); }

private:
    const gguf::File& file_;
    std::string prefix_;
};

}  // namespace lucebox::model
