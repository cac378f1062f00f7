#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace kolo {

/// Dense steps first, then densities that fall to the one asked for. A high density by all-gather
/// costs more than dense, so that early steps are better dense than nearly dense.
struct WarmUp {
  std::size_t dense_steps = 0;
  std::vector<double> ramp = {};      ///< Densities, one after the other.
  std::size_t steps_per_density = 0;  ///< Of the ramp; 0 leaves it out.
};

/// Density of a step, counted from 0; nothing if the step is dense. Pure.
std::optional<double> density_at(const WarmUp& warm_up, double density, std::size_t step);

/// How many of `count` elements a density keeps: ceil(density * count), at least one of any.
/// Errors: UsageError unless 0 < density <= 1.
std::size_t pairs_to_keep(double density, std::size_t count);

}  // namespace kolo
