// Every sum runs left to right in f32 and every product in the order written: the bytes of a block depend on it.
#include "quants/search.h"
#include "quants/blocks.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace lucebox::quants {
namespace {

constexpr int kMostGroup = 32;

// Sums of a fit x ~ scale * l: scale = wlx / wll, and wlx^2 / wll is what it explains.
struct Fit {
    float wlx = 0, wll = 0;
    void add(float w, float x, float l) { wlx += w * x * l, wll += w * l * l; }
    bool beats(float best) const { return wll > 0 && wlx * wlx > best * wll; }
    float scale() const { return wlx / wll; }
};

float squared_error(const float* x, const float* w, const uint8_t* level, int n, ScaleOffset fit) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
        const float diff = fit.scale * level[i] - fit.min - x[i];
        sum += w[i] * (diff * diff);
    }
    return sum;
}

void offset_levels(const float* x, int n, int most, float inverse, float min, uint8_t* level) {
    for (int i = 0; i < n; i++) level[i] = static_cast<uint8_t>(std::clamp(round_even(inverse * (x[i] - min)), 0, most));
}

}  // namespace

int round_even(float x) {
    // Adding 1.5 * 2^23 leaves the integer in the low bits; the mask keeps numbers out of range harmless.
    return static_cast<int>(std::bit_cast<uint32_t>(x + 12582912.0f) & 0x007fffff) - 0x00400000;
}

float largest(const float* x, int n) {
    float out = 0;
    for (int i = 0; i < n; i++)
        if (std::fabs(x[i]) > std::fabs(out)) out = x[i];
    return out;
}

int nearest_level(float x) {
    if (x <= kLevels[0]) return 0;
    if (x >= kLevels[15]) return 15;
    int upper = 1;
    while (upper < 15 && !(x < kLevels[upper])) upper++;
    return x - kLevels[upper - 1] < kLevels[upper] - x ? upper - 1 : upper;
}

float search_symmetric(const float* x, const float* w, int n, int most, uint8_t* level) {
    const float peak = largest(x, n);
    std::fill(level, level + n, static_cast<uint8_t>(0));
    if (std::fabs(peak) < kTiny) return 0;
    float scale = 0, best = 0;
    // k = 0 is the first try; it always counts.
    for (int k : {0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        const float inverse = -(static_cast<float>(most) + 0.1f * static_cast<float>(k)) / peak;
        uint8_t tried[kMostGroup];
        Fit fit;
        for (int i = 0; i < n; i++) {
            const int l = std::clamp(round_even(inverse * x[i]), -most, most - 1);
            tried[i] = static_cast<uint8_t>(l + most);
            fit.add(w[i], x[i], static_cast<float>(l));
        }
        if (k != 0 && !fit.beats(best)) continue;
        std::copy(tried, tried + n, level);
        scale = fit.wll != 0 ? fit.scale() : 0.0f;
        best = scale * fit.wlx;
    }
    return scale;
}

ScaleOffset search_offset(const float* x, const float* w, int n, int most, ScaleRange range, uint8_t* level) {
    float min = x[0], max = x[0], sum_w = 0, sum_wx = 0;
    for (int i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        sum_w += w[i];
        sum_wx += w[i] * x[i];
    }
    if (min > 0) min = 0;
    std::fill(level, level + n, static_cast<uint8_t>(0));
    if (max == min) return {0, -min};
    const float steepest = static_cast<float>(most) / (max - min);
    ScaleOffset out{1 / steepest, -min};
    offset_levels(x, n, most, steepest, min, level);
    float best = squared_error(x, w, level, n, out);
    for (int k = 0; k <= range.steps; k++) {
        uint8_t tried[kMostGroup];
        offset_levels(x, n, most, (range.first + range.step * static_cast<float>(k) + static_cast<float>(most)) / (max + out.min), -out.min, tried);
        float sum_wl = 0, sum_wll = 0, sum_wlx = 0;
        for (int i = 0; i < n; i++) {
            const float l = tried[i];
            sum_wl += w[i] * l;
            sum_wll += w[i] * l * l;
            sum_wlx += w[i] * l * x[i];
        }
        const float determinant = sum_w * sum_wll - sum_wl * sum_wl;
        if (!(determinant > 0)) continue;
        ScaleOffset fit{(sum_w * sum_wlx - sum_wx * sum_wl) / determinant, -((sum_wll * sum_wx - sum_wl * sum_wlx) / determinant)};
        if (fit.min < 0) fit = {sum_wlx / sum_wll, 0};
        const float error = squared_error(x, w, tried, n, fit);
        if (!(error < best)) continue;
        best = error;
        out = fit;
        std::copy(tried, tried + n, level);
    }
    return out;
}

float search_positive(const float* x, const float* w, int n, int most, uint8_t* level) {
    const float max = std::max(0.0f, *std::max_element(x, x + n));
    std::fill(level, level + n, static_cast<uint8_t>(0));
    if (max < kTiny) return 0;
    float inverse = 0, best = 0;
    for (int k : {0, -4, -3, -2, -1, 1, 2, 3, 4}) {
        const float tried = (0.1f * static_cast<float>(k) + static_cast<float>(most)) / max, scale = 1 / tried;
        float error = 0;
        for (int i = 0; i < n; i++) {
            const float diff = x[i] - scale * static_cast<float>(std::min(most, round_even(tried * x[i])));
            error += w[i] * diff * diff;
        }
        if (k == 0 || error < best) best = error, inverse = tried;
    }
    Fit fit;
    for (int i = 0; i < n; i++) {
        level[i] = static_cast<uint8_t>(std::min(most, round_even(inverse * x[i])));
        fit.add(w[i], x[i], level[i]);
    }
    // Then level by level: each is set to what the others' scale wants, if that explains more.
    bool changed = true;
    for (int pass = 0; pass < 5 && changed; pass++) {
        changed = false;
        for (int i = 0; i < n; i++) {
            Fit other{fit.wlx - w[i] * x[i] * level[i], fit.wll - w[i] * level[i] * level[i]};
            if (!(other.wlx > 0 && other.wll > 0)) continue;
            const int l = std::min(most, round_even(x[i] * other.wll / other.wlx));
            if (l == level[i]) continue;
            other.add(w[i], x[i], static_cast<float>(l));
            if (!(other.wlx * other.wlx * fit.wll > fit.wlx * fit.wlx * other.wll)) continue;
            level[i] = static_cast<uint8_t>(l);
            fit = other;
            changed = true;
        }
    }
    return fit.wll > 0 ? fit.scale() : 0.0f;
}

float search_levels(const float* x, const float* w, int n) {
    const float peak = largest(x, n);
    if (std::fabs(peak) < kTiny) return 0;
    float scale = 0, best = 0;
    for (int k = -8; k <= 7; k++) {  // -8 is the first try; it always counts, and puts the peak on the lowest level
        const bool first = k == -8;
        const float inverse = first ? 1 / (-peak / kLevels[0]) : static_cast<float>(k + kLevels[0]) / peak;
        float wqx = 0, wqq = 0;
        for (int i = 0; i < n; i++) {
            const float q = kLevels[nearest_level(inverse * x[i])];
            wqx += w[i] * q * x[i];
            wqq += w[i] * q * q;
        }
        if (!first && !(wqq > 0 && wqx * wqx > best * wqq)) continue;
        scale = wqx / wqq;
        best = scale * wqx;
    }
    return scale;
}

}  // namespace lucebox::quants
