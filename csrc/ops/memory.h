// The memory plan. A model takes every buffer through this, by name; dry, it only records, so that what a plan shows is what a load takes.
#pragma once
#include "ops/backend.h"
#include <string>
#include <vector>

namespace lucebox::ops {

struct PlanEntry {
    std::string name;
    uint64_t bytes;
    bool mapped;  // pages of the file, used where they are; else memory of the backend
};

class Memory {
public:
    explicit Memory(Backend& backend, bool dry) : backend_(backend), dry_(dry) {}

    // Zeroed memory; null when dry.
    void* take(const std::string& name, uint64_t bytes) {
        bytes = (bytes + 63) / 64 * 64;
        if (bytes) entries_.push_back({name, bytes, false});
        return dry_ ? nullptr : backend_.allocate(bytes);
    }
    template <class T> T* take(const std::string& name, uint64_t count) { return static_cast<T*>(take(name, count * sizeof(T))); }
    void map(const std::string& name, uint64_t bytes) {
        if (bytes) entries_.push_back({name, bytes, true});
    }

    bool dry() const { return dry_; }
    const std::vector<PlanEntry>& entries() const { return entries_; }
    uint64_t allocated() const {
        uint64_t sum = 0;
        for (const PlanEntry& entry : entries_) sum += entry.mapped ? 0 : entry.bytes;
        return sum;
    }

private:
    Backend& backend_;
    bool dry_;
    std::vector<PlanEntry> entries_;
};

}  // namespace lucebox::ops
