// KV pages of 256 tokens: a pool shared by the slots, and each slot's table.
#pragma once
#include "ops/tensor.h"
#include <vector>

namespace lucebox::engine {

class Pages {
public:
    Pages(int slots, int pages_a_slot) : used_(static_cast<size_t>(slots)), pages_a_slot_(pages_a_slot) {
        for (int page = slots * pages_a_slot; page-- > 0;) free_.push_back(page);
    }
    int free() const { return static_cast<int>(free_.size()); }
    // Pages of a slot, in the order of its tokens.
    const std::vector<int32_t>& of(int slot) const { return used_[static_cast<size_t>(slot)]; }

    // Gives a slot room for `tokens` tokens; returns whether its table changed. The pool holds all slots at full length.
    bool reserve(int slot, int tokens) {
        auto& pages = used_[static_cast<size_t>(slot)];
        const size_t before = pages.size();
        while (static_cast<int>(pages.size()) * ops::kPage < tokens) {
            pages.push_back(free_.back());
            free_.pop_back();
        }
        return pages.size() != before;
    }
    void release(int slot) {
        auto& pages = used_[static_cast<size_t>(slot)];
        free_.insert(free_.end(), pages.rbegin(), pages.rend());
        pages.clear();
    }
    int pages_a_slot() const { return pages_a_slot_; }

private:
    std::vector<int32_t> free_;
    std::vector<std::vector<int32_t>> used_;
    int pages_a_slot_;
};

}  // namespace lucebox::engine
