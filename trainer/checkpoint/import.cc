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
  const auto fill = [&](const std::string& name, const Shape& shape, std::span<float> values) {
    const StoredTensor* tensor = weights.find(name);
    if (tensor == nullptr) throw_data_error(path, fmt::format("it has no '{}'", name));
    if (tensor->shape != shape) {
      throw_data_error(path,
                       fmt::format("'{}' has shape [{}], and this model's has [{}]", tensor->name,
                                   fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
    }
    weights.copy(*tensor, values);
    names.insert(name);
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    fill(parameters[i].name(), parameters[i].shape(), parameters[i].value());
  }
  for (Buffer& buffer : parameters.buffers()) {
    fill(buffer.name, buffer.value.shape(), buffer.value.span());
  }
  for (const StoredTensor& tensor : weights.tensors()) {
    if (!names.contains(tensor.name)) {
      throw_data_error(path, fmt::format("this model has no '{}'", tensor.name));
    }
  }
}

}  // namespace kolo::trainer
