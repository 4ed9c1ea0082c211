#include "engine/plan.h"
#include "cpu/threads.h"
#include <cstdio>

namespace lucebox::engine {

namespace {

ops::KvForm kv_form(const std::string& name) {
    if (name == "q8_0") return ops::KvForm::Q8_0;
    if (name == "f16") return ops::KvForm::F16;
    if (name == "f32") return ops::KvForm::F32;
    throw Error(Kind::kRequest, "kv is \"" + name + "\"; it may be q8_0, f16 or f32");
}

std::string mib(uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
    return text;
}

}  // namespace

model::Shape check_options(Options& o, const model::Config& config) {
    constexpr int kMaxThreads = 256;
    LUCE_CHECK(o.slots >= 1 && o.slots <= ops::kMaxSlots, kRequest, "slots is ", o.slots, "; it may be 1 to ", ops::kMaxSlots);
    LUCE_CHECK(o.max_rows >= 1 && o.max_rows <= ops::kMaxRows, kRequest, "max_rows is ", o.max_rows, "; it may be 1 to ", ops::kMaxRows);
    LUCE_CHECK(o.threads >= 0 && o.threads <= kMaxThreads, kRequest, "threads is ", o.threads, "; it may be 1 to ", kMaxThreads, ", or 0 for one a core");
    LUCE_CHECK(o.max_ctx >= 1 && o.max_ctx <= config.context_length, kRequest, "max_ctx is ", o.max_ctx, "; the model was trained for 1 to ",
               config.context_length, " tokens");
    if (o.threads == 0) o.threads = cpu::physical_cores();
    return {o.max_ctx, o.slots, o.max_rows, kv_form(o.kv)};
}

void check_fits(const std::vector<ops::PlanEntry>& plan, uint64_t free) {
    uint64_t asked = 0;
    std::string table;
    for (const ops::PlanEntry& entry : plan) {
        if (entry.mapped) continue;
        asked += entry.bytes;
        table += "\n  " + mib(entry.bytes) + "  " + entry.name;
    }
    if (asked <= free) return;
    throw Error(Kind::kOutOfMemory, join("the plan needs ", mib(asked), ", ", mib(free), " are free; use a smaller max_ctx, fewer slots or a smaller kv", table),
                {{"asked", static_cast<int64_t>(asked)}, {"free", static_cast<int64_t>(free)}});
}

}  // namespace lucebox::engine
