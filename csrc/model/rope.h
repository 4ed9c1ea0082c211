// RoPE angles by docs/numerics.md: inv_freq is the f32 nearest to theta^(-2i/n); cos and sin the f32 nearest to those of the exact
// product position * inv_freq. Any f64 routine within 16 ulp returns the same f32 (tests/csrc/model/test_rope.py sweeps it).
#pragma once
#include <cmath>
#include <vector>

namespace lucebox::model {

class Rope {
public:
    Rope(float theta, int dims) {
        for (int i = 0; i < dims / 2; i++)
            inv_freq_.push_back(static_cast<float>(std::pow(static_cast<double>(theta), -2.0 * i / dims)));
    }
    // cos, sin [dims / 2] of a position below 2^24.
    void fill(int position, float* cos, float* sin) const {
        for (float f : inv_freq_) {
            const double angle = static_cast<double>(position) * static_cast<double>(f);
            *cos++ = static_cast<float>(std::cos(angle));
            *sin++ = static_cast<float>(std::sin(angle));
        }
    }

private:
    std::vector<float> inv_freq_;
};

}  // namespace lucebox::model
