#include "trainer/checkpoint/export.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/stored_vocabularies.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/data/data_error.h"
#include "trainer/kernels/vector.h"
#include "trainer/tensor.h"

namespace kolo::trainer {
namespace {

void write_weights(std::vector<StoredTensor> weights, const std::filesystem::path& file,
                   const TextFiles& vocabularies) {
  std::ranges::sort(weights, {}, &StoredTensor::name);
  const std::filesystem::path partial = std::filesystem::path(file) += ".partial";
  Metadata metadata = vocabularies.texts;
  metadata["format"] = "pt";
  try {
    write_safetensors(partial, std::move(weights), metadata);
    rename_durably(partial, file);
  } catch (const KoloError&) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

StoredTensor stored(std::string name, const Shape& shape, std::span<const float> values) {
  return {.name = std::move(name), .dtype = "F32", .shape = shape, .bytes = std::as_bytes(values)};
}

}  // namespace

void export_weights(const ParameterSet& parameters, const std::filesystem::path& file,
                    const TextFiles& vocabularies) {
  std::vector<StoredTensor> weights;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    weights.push_back(stored(parameters[i].name(), parameters[i].shape(), parameters[i].value()));
  }
  for (const Buffer& buffer : parameters.buffers()) {
    weights.push_back(stored(buffer.name, buffer.value.shape(), buffer.value.span()));
  }
  write_weights(std::move(weights), file, vocabularies);
}

void export_weights(const std::filesystem::path& path, const std::filesystem::path& file) {
  const StoredWeights weights(path);
  write_weights(weights.tensors(), file, vocabularies_of(path));
}

void export_weights(const std::filesystem::path& path, const std::filesystem::path& file,
                    const WeightLayout& layout) {
  const StoredWeights weights(path);
  for (const std::string& needed : layout.needed) {
    if (weights.find(needed) == nullptr) {
      throw_data_error(
          path, fmt::format("it has no '{}', which the layout {} needs", needed, layout.name));
    }
  }
  std::vector<Tensor> copies;
  std::vector<StoredTensor> placed;
  for (const StoredTensor& tensor : weights.tensors()) {
    const auto place = layout.place_of(tensor.name);
    if (!place) {
      throw_data_error(
          path, fmt::format("the layout {} has no place for '{}'", layout.name, tensor.name));
    }
    Tensor values(tensor.shape);
    weights.copy(tensor, values.span());
    if (place->is_transposed) {
      Tensor columns({tensor.shape.at(1), tensor.shape.at(0)});
      transpose(values.span(), tensor.shape[0], columns.span());
      values = std::move(columns);
    }
    copies.push_back(std::move(values));
    placed.push_back(stored(place->name, copies.back().shape(), copies.back().span()));
  }
  write_weights(std::move(placed), file, vocabularies_of(path));
}

void export_average(std::span<const std::filesystem::path> paths,
                    const std::filesystem::path& file) {
  check(!paths.empty(), "a mean needs weights");
  const StoredWeights first(paths[0]);
  std::vector<Tensor> means;
  for (const StoredTensor& tensor : first.tensors()) {
    means.emplace_back(tensor.shape);
    first.copy(tensor, means.back().span());
  }
  for (const std::filesystem::path& path : paths.subspan(1)) {
    const StoredWeights weights(path);
    if (weights.tensors().size() != means.size()) {
      throw_data_error(path,
                       fmt::format("it has {} weights, and {} has {}", weights.tensors().size(),
                                   paths[0].string(), means.size()));
    }
    for (std::size_t i = 0; i < means.size(); ++i) {
      const StoredTensor& one = first.tensors()[i];
      const StoredTensor* tensor = weights.find(one.name);
      if (tensor == nullptr || tensor->shape != one.shape) {
        throw_data_error(path, fmt::format("it has no '{}' of the shape that {} has", one.name,
                                           paths[0].string()));
      }
      Tensor values(tensor->shape);
      weights.copy(*tensor, values.span());
      add(means[i].span(), values.span(), means[i].span());
    }
  }
  std::vector<StoredTensor> averages;
  for (std::size_t i = 0; i < means.size(); ++i) {
    scale(means[i].span(), 1.0f / static_cast<float>(paths.size()));
    averages.push_back(stored(first.tensors()[i].name, means[i].shape(), means[i].span()));
  }
  write_weights(std::move(averages), file, vocabularies_of(paths[0]));
}

}  // namespace kolo::trainer
