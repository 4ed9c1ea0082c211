// Searches for the scales of a group of values: the reference encoders' own, to the bit (docs of the GGUF formats, "Encoders").
#pragma once
#include <cstdint>

namespace lucebox::quants {

inline constexpr float kTiny = 1e-15f;  // groups below it are stored as zeros

int round_even(float x);                       // |x| < 2^22
float largest(const float* x, int n);          // the value of largest magnitude, the first of several
int nearest_level(float x);                    // index into kLevels, the upper one on a tie

// x ~ scale * (level - most): n values, weights w; levels 0 to 2 most - 1. Returns the scale.
float search_symmetric(const float* x, const float* w, int n, int most, uint8_t* level);

// x ~ scale * level - min, levels 0 to most; the grid of first scales is (first + step * k + most) / range, k = 0 to steps.
struct ScaleRange {
    float first, step;
    int steps;
};
struct ScaleOffset {
    float scale, min;
};
ScaleOffset search_offset(const float* x, const float* w, int n, int most, ScaleRange range, uint8_t* level);

// x ~ scale * level for x >= 0, levels 0 to most.
float search_positive(const float* x, const float* w, int n, int most, uint8_t* level);

// x ~ scale * kLevels[nearest]: returns the scale only.
float search_levels(const float* x, const float* w, int n);

}  // namespace lucebox::quants
