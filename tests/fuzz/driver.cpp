// A small stand-in for libFuzzer: the same target and flags, a mutator that depends on the seed alone.
//   fuzz_gguf [-runs=N] [-max_total_time=SECONDS] [-seed=K] SEED_FILE...
// Without -runs the seed files are run as they are, which is how a crash is looked at. The input that crashes is left in crash.gguf.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t n_bytes);
extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<uint8_t>;
Bytes current;

void save_current() {
    if (FILE* out = std::fopen("crash.gguf", "wb")) {
        std::fwrite(current.data(), 1, current.size(), out);
        std::fclose(out);
    }
}

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        return z ^ z >> 31;
    }
    size_t below(size_t n) { return n ? next() % n : 0; }

private:
    uint64_t state_;
};

// Numbers at the edges of what a reader checks, now and then one that is near a real size.
uint64_t edge_number(Random& random, size_t n_bytes) {
    static constexpr uint64_t kEdges[] = {0, 1, 2, 4, 8, 9, 12, 13, 31, 32, 63, 64, 255, 256, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff,
                                          uint64_t{1} << 32, (uint64_t{1} << 61) + 1, (uint64_t{1} << 63) - 1, uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX};
    if (random.below(4) == 0) return n_bytes - random.below(64) + random.below(64);
    return kEdges[random.below(std::size(kEdges))];
}

void mutate(Bytes& bytes, const std::vector<Bytes>& seeds, Random& random) {
    // Most changes go to the header, which is at the start.
    const size_t at = random.below(random.below(8) ? std::min<size_t>(bytes.size(), 4096) : bytes.size());
    const size_t count = 1 + random.below(random.below(4) ? 16 : 256), left = bytes.size() - at;
    switch (random.below(8)) {
        case 0: bytes[at] ^= static_cast<uint8_t>(1 << random.below(8)); break;
        case 1: bytes[at] = static_cast<uint8_t>(random.next()); break;
        case 2: case 3: {  // a number
            const uint64_t number = edge_number(random, bytes.size());
            std::memcpy(&bytes[at], &number, std::min<size_t>(left, random.below(2) ? 4 : 8));
            break;
        }
        case 4: bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + std::min(count, left))); break;
        case 5: {  // a stretch twice
            const Bytes copy(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + std::min(count, left)));
            bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(random.below(bytes.size())), copy.begin(), copy.end());
            break;
        }
        case 6: {  // a stretch of another seed
            const Bytes& other = seeds[random.below(seeds.size())];
            const size_t from = random.below(std::min<size_t>(other.size(), 4096));
            std::memcpy(&bytes[at], &other[from], std::min({count, left, other.size() - from}));
            break;
        }
        default: if (random.below(8) == 0) bytes.resize(1 + at); break;
    }
    if (bytes.empty()) bytes.push_back(0);
}

double flag(const std::string& argument, const char* name, double otherwise) {
    const std::string prefix = std::string("-") + name + "=";
    return argument.starts_with(prefix) ? std::atof(argument.c_str() + prefix.size()) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
    double runs = 0, seconds = 1e9, seed = 1;
    std::vector<Bytes> seeds;
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        runs = flag(argument, "runs", runs), seconds = flag(argument, "max_total_time", seconds), seed = flag(argument, "seed", seed);
        if (argument.starts_with("-")) continue;
        std::ifstream in(argument, std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        if (seeds.back().empty()) return std::fprintf(stderr, "%s is empty or cannot be read\n", argv[i]), 2;
    }
    if (seeds.empty()) return std::fprintf(stderr, "usage: %s [-runs=N] [-max_total_time=SECONDS] [-seed=K] SEED_FILE...\n", argv[0]), 2;
    __sanitizer_set_death_callback(save_current);
    std::signal(SIGABRT, [](int) { save_current(); });
    for (const Bytes& bytes : seeds) {
        current = bytes;
        LLVMFuzzerTestOneInput(current.data(), current.size());
    }
    Random random(static_cast<uint64_t>(seed));
    const auto start = std::chrono::steady_clock::now();
    uint64_t done = 0;
    while (static_cast<double>(done) < runs && std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
        current = seeds[random.below(seeds.size())];
        for (size_t n = 1 + random.below(6); n > 0; n--) mutate(current, seeds, random);
        current.shrink_to_fit();  // a byte read past the end is a byte past the allocation
        LLVMFuzzerTestOneInput(current.data(), current.size());
        done++;
    }
    std::printf("%llu inputs, no fault\n", static_cast<unsigned long long>(done));
    return 0;
}
