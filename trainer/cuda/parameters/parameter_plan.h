#pragma once

#include <cstddef>
#include <vector>

#include "trainer/cuda/kernels/update.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer::cuda {

/// Place of each parameter in the arrays of all parameters (values, moments, 16-bit copies), and
/// the chunks of the arrays for updates. Pure.
struct ParameterPlan {
  /// Elements, by parameter; each a multiple of kParameterAlignment.
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> sizes;
  std::size_t count = 0;  ///< Elements of each array, including gaps between parameters.
};

/// Elements: 256 bytes of a 16-bit copy.
inline constexpr std::size_t kParameterAlignment = 128;

ParameterPlan plan_parameters(const ParameterSet& parameters);

/// The pieces of one update with null gradients, to be filled in.
struct PlannedChunk {
  std::size_t parameter;
  std::size_t begin;  ///< Within the parameter.
  UpdateChunk chunk;
};
std::vector<PlannedChunk> plan_chunks(const ParameterPlan& plan, const ParameterSet& parameters);

}  // namespace kolo::trainer::cuda
