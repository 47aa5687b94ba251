// Inside of quantise_grid.cpp and quantise_iq1.cpp: a grid with a fast search for the vector nearest to given values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::quantise {

/// The vectors of a grid (grids.h) as small numbers: level l of an element stands for first + step * l.
class Grid {
  public:
    /// codes: ascending, outlives the grid; dim elements of `bits` bits with `levels` levels.
    Grid(std::span<const uint16_t> codes, int dim, int bits, int levels, float first, float step);

    int dim() const { return dim_; }
    float value(int index, int j) const {
        return level_value(codes_[static_cast<size_t>(index)] >> bits_ * j & level_mask_);
    }

    /// The index with the least sum over j of w[j] * (scale * value(j) - y[j])^2, the lowest of equals. scale > 0.
    int nearest(const float* y, const float* w, float scale) const;

  private:
    /// Vectors whose upper half of the elements is the same: they lie together.
    struct Group {
        int upper, begin, end;
    };
    float level_value(int level) const { return first_ + step_ * static_cast<float>(level); }

    std::span<const uint16_t> codes_;
    int dim_, bits_, levels_, level_mask_;
    float first_, step_;
    std::vector<Group> groups_;
};

}  // namespace strata::quantise
