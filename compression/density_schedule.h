#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace kolo {

/// Dense steps first, then falling densities down to the requested one. A high density by
/// all-gather costs more than a dense step, so early steps are dense rather than nearly dense.
struct WarmUp {
  std::size_t dense_steps = 0;
  std::vector<double> ramp = {};  ///< Densities in succession.
  std::size_t steps_per_density =
      0;  ///< Length of each density of the ramp; 0 leaves the ramp out.
};

/// Density of a step, counted from 0; empty if the step is dense. Pure.
std::optional<double> density_at(const WarmUp& warm_up, double density, std::size_t step);

/// Number of `count` elements that a density keeps: ceil(density * count), at least one if there
/// are any. Errors: UsageError unless 0 < density <= 1.
std::size_t pairs_to_keep(double density, std::size_t count);

}  // namespace kolo
