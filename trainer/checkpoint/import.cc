#include "trainer/checkpoint/import.h"

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/checkpoint/stored_weights.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

using Take = std::function<void(const std::string& name, const Shape& shape, std::span<float>)>;

/// Calls `take` for every parameter and buffer.
void visit_weights(ParameterSet& parameters, const Take& take) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    take(parameters[i].name(), parameters[i].shape(), parameters[i].value());
  }
  for (Buffer& buffer : parameters.buffers()) {
    take(buffer.name, buffer.value.shape(), buffer.value.span());
  }
}

SharedWeights import_shared(const std::filesystem::path& path, ParameterSet& parameters) {
  const StoredWeights weights(path);
  SharedWeights result;
  std::set<std::string> names;
  visit_weights(
      parameters, [&](const std::string& name, const Shape& shape, std::span<float> values) {
        const StoredTensor* tensor = weights.find(name);
        if (tensor == nullptr) {
          result.begun_new.push_back(name);
          return;
        }
        if (tensor->shape != shape) {
          throw_data_error(
              path, fmt::format("'{}' has shape [{}], and this model's has [{}]", tensor->name,
                                fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
        }
        weights.copy(*tensor, values);
        names.insert(name);
      });
  for (const StoredTensor& tensor : weights.tensors()) {
    if (!names.contains(tensor.name)) result.left.push_back(tensor.name);
  }
  result.taken = names.size();
  return result;
}

}  // namespace

void import_weights(const std::filesystem::path& path, ParameterSet& parameters) {
  const SharedWeights shared = import_shared(path, parameters);
  if (!shared.begun_new.empty()) {
    throw_data_error(path, fmt::format("it has no '{}'", shared.begun_new.front()));
  }
  if (!shared.left.empty()) {
    throw_data_error(path, fmt::format("this model has no '{}'", shared.left.front()));
  }
}

SharedWeights import_shared_weights(const std::filesystem::path& path, ParameterSet& parameters) {
  SharedWeights shared = import_shared(path, parameters);
  if (shared.taken == 0) throw_data_error(path, "it has none of this model's weights");
  return shared;
}

std::string describe(const std::filesystem::path& path, const SharedWeights& weights) {
  const auto list = [](std::string_view what, const std::vector<std::string>& names) {
    return names.empty() ? "" : fmt::format("; {}: {}", what, fmt::join(names, ", "));
  };
  return fmt::format("weights: {} of {}{}{}", weights.taken, path.string(),
                     list("new", weights.begun_new), list("left", weights.left));
}

}  // namespace kolo::trainer
