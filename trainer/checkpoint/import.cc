#include "trainer/checkpoint/import.h"

#include <cstring>
#include <set>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/half.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

template <typename Half>
void widen(std::span<const std::byte> bytes, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Half half;
    std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
    values[i] = to_float(half);
  }
}

void take(const std::filesystem::path& file, const StoredTensor& tensor, Parameter& parameter) {
  if (tensor.shape != parameter.shape()) {
    throw_data_error(
        file, fmt::format("'{}' has shape [{}], and this model's has [{}]", tensor.name,
                          fmt::join(tensor.shape, ", "), fmt::join(parameter.shape(), ", ")));
  }
  const std::span<float> values = parameter.value();
  if (tensor.dtype == "F32") {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.dtype == "BF16") {
    widen<BFloat16>(tensor.bytes, values);
  } else if (tensor.dtype == "F16") {
    widen<Float16>(tensor.bytes, values);
  } else {
    throw_data_error(file,
                     fmt::format("'{}' is {}, not F32, F16 or BF16", tensor.name, tensor.dtype));
  }
}

}  // namespace

void import_weights(const std::filesystem::path& file, ParameterSet& parameters) {
  const SafetensorsFile weights(file);
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name();
    const StoredTensor* tensor = weights.find(name);
    if (tensor == nullptr) throw_data_error(file, fmt::format("it has no '{}'", name));
    take(file, *tensor, parameters[i]);
    names.insert(name);
  }
  for (const StoredTensor& tensor : weights.tensors()) {
    if (!names.contains(tensor.name)) {
      throw_data_error(file, fmt::format("this model has no '{}'", tensor.name));
    }
  }
}

}  // namespace kolo::trainer
