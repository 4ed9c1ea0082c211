// The contract wants denormals and round to nearest; other libraries in the process may have set flush-to-zero on this thread.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lucebox::ops {

// Sets the mode of the calling thread for the object's life.
class FloatMode {
public:
#if defined(__x86_64__)
    FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~FloatMode() { _mm_setcsr(saved_); }
#else
    FloatMode() : saved_(0) {}
#endif
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

private:
    [[maybe_unused]] uint32_t saved_;
};

}  // namespace lucebox::ops
