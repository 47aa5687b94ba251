// Inside of quantise_grid.cpp and quantise_iq1.cpp: a grid laid out for finding the vector nearest to given values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::quantise {

/// The vectors of a grid as small numbers: level l of a vector stands for step * l + first.
class Grid {
  public:
    Grid(std::span<const uint16_t> codes, int dim, int bits, float first, float step);

    int dim() const { return dim_; }
    float value(int index, int j) const { return values_[static_cast<size_t>(j) * codes_.size() + index]; }

    /// The index with the least sum over j of w[j] * (scale * value(j) - y[j])^2, the lowest of equals. scale > 0.
    int nearest(const float* y, const float* w, float scale) const;

  private:
    std::span<const uint16_t> codes_;  // ascending
    int dim_, bits_;
    float first_, step_;
    std::vector<float> values_;  // [dim][vectors]
};

}  // namespace strata::quantise
