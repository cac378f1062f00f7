#include "trainer/checkpoint/import.h"

#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/checkpoint/stored_weights.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {

void import_weights(const std::filesystem::path& path, ParameterSet& parameters) {
  const StoredWeights weights(path);
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    const StoredTensor* tensor = weights.find(parameter.name());
    if (tensor == nullptr) throw_data_error(path, fmt::format("it has no '{}'", parameter.name()));
    if (tensor->shape != parameter.shape()) {
      throw_data_error(
          path, fmt::format("'{}' has shape [{}], and this model's has [{}]", tensor->name,
                            fmt::join(tensor->shape, ", "), fmt::join(parameter.shape(), ", ")));
    }
    weights.copy(*tensor, parameter.value());
    names.insert(parameter.name());
  }
  for (const StoredTensor& tensor : weights.tensors()) {
    if (!names.contains(tensor.name)) {
      throw_data_error(path, fmt::format("this model has no '{}'", tensor.name));
    }
  }
}

}  // namespace kolo::trainer
