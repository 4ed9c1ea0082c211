#include "hip/emulator/work_group.h"
#include "error.h"
#include <algorithm>
#include <memory>
#include <numeric>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace lucebox::hip::emulator {

namespace {

constexpr size_t kStackBytes = 64 * 1024;

// Those who must all arrive before one goes on.
struct Party {
    int arrived = 0, alive = 0;
    unsigned generation = 0;
};

struct Fibre {
    void* stack_pointer;
    bool done;
    Party* waits;
    unsigned waits_generation;
    size_t shared_used;
    unsigned barriers, exchanges;  // passed so far: the same for all of a workgroup, and of a wave, in the end
    unsigned parity;  // exchange buffers alternate, so that a fast lane does not overwrite what a slow one reads
#if !defined(__x86_64__)
    ucontext_t context;
#endif
};

struct Group {
    int threads, current;
    int block[3];
    const Launch* launch;
    std::string fault;
    void* scheduler;
    Fibre fibre[kMaxThreads];
    Party all, wave[kMaxThreads / 32];
    uint32_t words[2][kMaxThreads][8];
    alignas(16) uint8_t shared[kSharedBytes];
    std::unique_ptr<uint8_t[]> stacks;
#if !defined(__x86_64__)
    ucontext_t main;
#endif
};

Group& group() {
    thread_local std::unique_ptr<Group> g;
    if (!g) {
        g = std::make_unique<Group>();
        g->stacks = std::make_unique<uint8_t[]>(kStackBytes * (kMaxThreads + 1));
    }
    return *g;
}
thread_local Group* running = nullptr;  // what work-items see

#if defined(__x86_64__)
extern "C" void lucebox_switch_fibre(void** save, void* to);
asm(R"(
.text
.globl lucebox_switch_fibre
.hidden lucebox_switch_fibre
.type lucebox_switch_fibre,@function
lucebox_switch_fibre:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size lucebox_switch_fibre,.-lucebox_switch_fibre
)");
#endif

void yield() {
    Group* g = running;
    Fibre& f = g->fibre[g->current];
#if defined(__x86_64__)
    lucebox_switch_fibre(&f.stack_pointer, g->scheduler);
#else
    swapcontext(&f.context, &g->main);
#endif
}

void release(Party& p) { p.arrived = 0, p.generation++; }

void meet(Party& p) {
    if (++p.arrived >= p.alive) return release(p);
    Fibre& f = running->fibre[running->current];
    f.waits = &p, f.waits_generation = p.generation;
    yield();
}

void leave(Party& p) {
    if (--p.alive > 0 && p.arrived >= p.alive) release(p);
}

// A fault ends the launch: the fibre never returns, the scheduler throws.
void fail(const std::string& fault) {
    if (running->fault.empty()) running->fault = fault;
    for (;;) yield();
}

void entry() {
    Group* g = running;
    g->launch->kernel->body(g->launch->args);
    Fibre& f = g->fibre[g->current];
    f.done = true;
    leave(g->wave[g->current / 32]), leave(g->all);
    for (;;) yield();
}

void start_fibre(Group& g, int t) {
    Fibre& f = g.fibre[t];
    f.done = false, f.waits = nullptr, f.parity = f.barriers = f.exchanges = 0, f.shared_used = (g.launch->shared_bytes + 15) / 16 * 16;
    uint8_t* base = g.stacks.get();
    base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
    uint8_t* top = base + kStackBytes * static_cast<size_t>(t + 1);
#if defined(__x86_64__)
    void** sp = reinterpret_cast<void**>(top);
    *--sp = nullptr;
    *--sp = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    f.stack_pointer = sp;
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = top - kStackBytes, f.context.uc_stack.ss_size = kStackBytes, f.context.uc_link = nullptr;
    makecontext(&f.context, entry, 0);
#endif
}

void resume(Group& g, int t) {
    g.current = t;
#if defined(__x86_64__)
    lucebox_switch_fibre(&g.scheduler, g.fibre[t].stack_pointer);
#else
    swapcontext(&g.main, &g.fibre[t].context);
#endif
}

void order_threads(const Group& g, std::vector<int>& order) {
    order.resize(static_cast<size_t>(g.threads));
    std::iota(order.begin(), order.end(), 0);
    if (g.launch->order == Order::kBackward) std::reverse(order.begin(), order.end());
    if (g.launch->order != Order::kShuffled) return;
    uint64_t s = static_cast<uint64_t>(g.block[0] * 97 + g.block[1] * 31 + g.block[2] + 1);
    for (size_t i = order.size() - 1; i > 0; i--) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i], order[(s >> 33) % (i + 1)]);
    }
}

void run_group(Group& g, std::vector<int>& order) {
    memset(g.shared, 0xff, g.launch->shared_limit);
    g.all = {0, g.threads, 0};
    for (int w = 0; w < kMaxThreads / 32; w++) g.wave[w] = {0, std::clamp(g.threads - 32 * w, 0, 32), 0};
    for (int t = 0; t < g.threads; t++) start_fibre(g, t);
    order_threads(g, order);
    for (int left = g.threads; left > 0;) {
        bool moved = false;
        for (int t : order) {
            Fibre& f = g.fibre[t];
            if (f.done) continue;
            if (f.waits && f.waits->generation == f.waits_generation) continue;
            f.waits = nullptr, moved = true;
            resume(g, t);
            if (!g.fault.empty()) return;
            left -= f.done;
        }
        if (!moved) {
            g.fault = "a barrier, an exchange or a matrix instruction is not reached by all of its work-items";
            return;
        }
    }
    for (int t = 0; t < g.threads; t++) {
        const Fibre &f = g.fibre[t], &first = g.fibre[0], &of_wave = g.fibre[t & ~31];
        if (f.barriers != first.barriers || f.exchanges != of_wave.exchanges) {
            g.fault = join("work-item ", t, " ends after ", f.barriers, " barriers and ", f.exchanges, " exchanges, others after ", first.barriers,
                           " and ", of_wave.exchanges);
            return;
        }
    }
}

// A place of my own in this exchange; all lanes have filled theirs when it returns.
struct Meeting {
    Group& g = *running;
    int t = g.current, base = t & ~31;
    unsigned p = g.fibre[t].parity ^= 1;
    uint32_t* own() const { return g.words[p][t]; }
    const uint32_t* of(int lane) const { return g.words[p][base + (lane & 31)]; }
    void all_arrive() const {
        g.fibre[t].exchanges++;
        meet(g.wave[t / 32]);
    }
};

int product(const uint32_t* w, const uint32_t* x, int bytes, bool w_signed) {
    const uint8_t* a = reinterpret_cast<const uint8_t*>(w);
    const int8_t* b = reinterpret_cast<const int8_t*>(x);
    int sum = 0;
    for (int i = 0; i < bytes; i++) sum += (w_signed ? static_cast<int8_t>(a[i]) : a[i]) * b[i];
    return sum;
}

}  // namespace

int current_thread() { return running->current; }
int current_block(int axis) { return running->block[axis]; }
uint8_t* dynamic_memory() { return running->shared; }
void group_barrier() {
    running->fibre[running->current].barriers++;
    meet(running->all);
}
void lane_barrier() {
    running->fibre[running->current].exchanges++;
    meet(running->wave[running->current / 32]);
}

void* shared_memory(size_t bytes) {
    Fibre& f = running->fibre[running->current];
    uint8_t* at = running->shared + f.shared_used;
    f.shared_used += (bytes + 15) / 16 * 16;
    const size_t limit = running->launch->shared_limit;
    if (f.shared_used > limit) fail(join("the kernel takes ", f.shared_used, " bytes of workgroup memory; a workgroup has ", limit));
    return at;
}

uint32_t exchange(uint32_t value, int source) {
    const Meeting m;
    m.own()[0] = value;
    m.all_arrive();
    return m.of(source)[0];
}

// Lane L holds row (column) L % 16 at k 8 (L / 16) ..; its sums are column L % 16, rows 8 (L / 16) + i.
void wmma_gfx12(int* d, const uint32_t* w, const uint32_t* x, bool w_signed) {
    const Meeting m;
    uint32_t* own = m.own();
    own[0] = w[0], own[1] = w[1], own[2] = x[0], own[3] = x[1];
    m.all_arrive();
    const int lane = m.t & 31;
    for (int i = 0; i < 8; i++)
        for (int h = 0; h < 32; h += 16) d[i] += product(m.of((lane & 15) + h), m.of((lane >> 4) * 8 + i + h) + 2, 8, w_signed);
}

// Lanes L and L + 16 both hold all 16 k of row L % 16; sums are column L % 16, rows 2 i + L / 16.
void wmma_gfx11(int* d, const uint32_t* w, const uint32_t* x, bool w_signed) {
    const Meeting m;
    memcpy(m.own(), x, 16), memcpy(m.own() + 4, w, 16);
    m.all_arrive();
    const int lane = m.t & 31;
    if (memcmp(m.of(lane & 15), m.of((lane & 15) + 16), 32) != 0) fail("operands of a gfx11 matrix instruction differ between the half-waves");
    for (int i = 0; i < 8; i++) d[i] += product(m.of(lane & 15) + 4, m.of(2 * i + (lane >> 4)), 16, w_signed);
}

// Lane 4 g + c holds w rows g and g + 8 and x column g at k 4c ..; sums are rows g, g + 8, columns 2c, 2c + 1.
void mma_16816(int* d, const uint32_t* w, uint32_t x, bool w_signed) {
    const Meeting m;
    uint32_t* own = m.own();
    own[0] = w[0], own[1] = w[1], own[2] = x;
    m.all_arrive();
    const int g = (m.t & 31) >> 2, c = m.t & 3;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) d[i] += product(m.of(4 * g + k) + i / 2, m.of(4 * (2 * c + i % 2) + k) + 2, 4, w_signed);
}

void run(const Launch& launch) {
    Group& g = group();
    LUCE_CHECK(launch.threads > 0 && launch.threads % 32 == 0 && static_cast<int>(launch.threads) <= launch.kernel->max_threads, kDevice, launch.kernel->name,
               ": ", launch.threads, " work-items a workgroup; a multiple of 32 up to ", launch.kernel->max_threads);
    LUCE_CHECK(launch.shared_bytes <= launch.shared_limit, kDevice, launch.kernel->name, ": ", launch.shared_bytes, " bytes of workgroup memory; at most ",
               launch.shared_limit);
    g.threads = static_cast<int>(launch.threads), g.launch = &launch, g.fault.clear();
    running = &g;
    std::vector<int> order;
    for (uint32_t z = 0; z < launch.grid[2]; z++)
        for (uint32_t y = 0; y < launch.grid[1]; y++)
            for (uint32_t x = 0; x < launch.grid[0]; x++) {
                g.block[0] = static_cast<int>(x), g.block[1] = static_cast<int>(y), g.block[2] = static_cast<int>(z);
                run_group(g, order);
                if (!g.fault.empty()) throw Error(Kind::kDevice, join("kernel ", launch.kernel->name, ", workgroup ", x, ",", y, ",", z, ": ", g.fault));
            }
}

}  // namespace lucebox::hip::emulator
