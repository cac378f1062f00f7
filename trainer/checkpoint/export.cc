#include "trainer/checkpoint/export.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/optimizer/weight_average.h"

namespace kolo::trainer {
namespace {

void write_weights(std::vector<StoredTensor> weights, const std::filesystem::path& file) {
  const std::filesystem::path partial = std::filesystem::path(file) += ".partial";
  write_safetensors(partial, std::move(weights), {{"format", "pt"}});
  rename_durably(partial, file);
}

}  // namespace

void export_weights(const ParameterSet& parameters, const std::filesystem::path& file) {
  std::vector<StoredTensor> weights;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    weights.push_back({.name = parameter.name(),
                       .dtype = "F32",
                       .shape = parameter.shape(),
                       .bytes = std::as_bytes(parameter.value())});
  }
  std::ranges::sort(weights, {}, &StoredTensor::name);
  write_weights(std::move(weights), file);
}

void export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& file) {
  const SavedState saved(checkpoint, 0, 1);
  std::vector<StoredTensor> weights = saved.shared_tensors(WeightAverage::kMeans);
  if (weights.empty()) weights = saved.shared_tensors(kWeights);
  write_weights(std::move(weights), file);
}

}  // namespace kolo::trainer
