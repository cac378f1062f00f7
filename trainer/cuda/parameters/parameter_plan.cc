#include "trainer/cuda/parameters/parameter_plan.h"

#include <algorithm>

#include "trainer/cuda/kernels/portable.h"
#include "trainer/optimizer/optimizer.h"

namespace kolo::trainer::cuda {

ParameterPlan plan_parameters(const ParameterSet& parameters) {
  ParameterPlan plan;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    plan.offsets.push_back(plan.count);
    plan.sizes.push_back(parameters[i].size());
    plan.count += round_up(parameters[i].size(), kParameterAlignment);
  }
  return plan;
}

std::vector<PlannedChunk> plan_chunks(const ParameterPlan& plan, const ParameterSet& parameters) {
  std::vector<PlannedChunk> chunks;
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    for (std::size_t begin = 0; begin < plan.sizes[i]; begin += kUpdateChunk) {
      const std::size_t count = std::min(kUpdateChunk, plan.sizes[i] - begin);
      chunks.push_back({.parameter = i,
                        .begin = begin,
                        .chunk = {.gradient = nullptr,
                                  .offset = plan.offsets[i] + begin,
                                  .count = static_cast<std::uint32_t>(count),
                                  .decays = decays(parameters[i]) ? 1u : 0u}});
    }
  }
  return chunks;
}

}  // namespace kolo::trainer::cuda
