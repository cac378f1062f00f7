#include "trainer/checkpoint/stored_weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "trainer/errors.h"
#include "trainer/kernels/kernels.h"
#include "trainer/optimizer/weight_average.h"
#include "trainer/tensor.h"

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

using Place = WeightLayout::Place;

/// Copies the tensors of a file or checkpoint to the parameters of a model.
class Import {
 public:
  Import(const std::filesystem::path& path, const StoredWeights& weights)
      : path_(path), weights_(weights) {}

  /// Chooses the first of `layouts` under which the file has `parameter`, unless the file uses the
  /// model's own names.
  void find_layout(const std::string& parameter, std::span<const WeightLayout> layouts) {
    if (weights_.find(parameter) != nullptr) return;
    for (const WeightLayout& layout : layouts) {
      const std::optional<Place> place = layout.place_of(parameter);
      if (!place || find(layout, place->name) == nullptr) continue;
      layout_ = &layout;
      return;
    }
  }

  /// Copies the tensor of `parameter` to `values` if the file has it.
  void fill(const std::string& parameter, const Shape& shape, std::span<float> values) {
    const Place place = place_of(parameter);
    const StoredTensor* const found = tensor_at(place);
    if (found == nullptr) {
      result_.begun_new.push_back(name_in_file(place.name));
      return;
    }
    const StoredTensor& tensor = *found;
    Shape wanted = shape;
    if (place.is_transposed) std::ranges::reverse(wanted);
    if (tensor.shape != wanted) {
      throw_data_error(path_,
                       fmt::format("'{}' has shape [{}], and this model's has [{}]", tensor.name,
                                   fmt::join(tensor.shape, ", "), fmt::join(wanted, ", ")));
    }
    if (place.is_transposed) {
      Tensor stored(wanted);
      weights_.copy(tensor, stored.span());
      transpose(stored.span(), wanted[0], values);
    } else {
      weights_.copy(tensor, values);
    }
    names_.insert(tensor.name);
    ++result_.taken;
  }

  /// Returns which parameters were found, and which tensors of the file were not used. Call after
  /// all parameters.
  SharedWeights result() {
    for (const StoredTensor& tensor : weights_.tensors()) {
      if (!names_.contains(tensor.name) && !may_be_left(tensor)) {
        result_.left.push_back(tensor.name);
      }
    }
    return std::move(result_);
  }

 private:
  Place place_of(const std::string& parameter) const {
    if (layout_ == nullptr) return {.name = parameter};
    const std::optional<Place> place = layout_->place_of(parameter);
    if (place) return *place;
    throw_data_error(path_,
                     fmt::format("it has the layout {}, which has no place for this model's '{}'",
                                 layout_->name, parameter));
  }

  /// Finds a tensor of `layout`. `name` has the layout's prefix, which the file may omit.
  const StoredTensor* find(const WeightLayout& layout, const std::string& name) const {
    const StoredTensor* tensor = weights_.find(name);
    if (tensor != nullptr || !name.starts_with(layout.prefix)) return tensor;
    return weights_.find(name.substr(layout.prefix.size()));
  }

  /// Returns `name` without the layout's prefix if the file omits that.
  std::string name_in_file(const std::string& name) const {
    const auto has_prefix = [this](const StoredTensor& tensor) {
      return tensor.name.starts_with(layout_->prefix);
    };
    if (layout_ == nullptr || !name.starts_with(layout_->prefix)) return name;
    if (std::ranges::any_of(weights_.tensors(), has_prefix)) return name;
    return name.substr(layout_->prefix.size());
  }

  /// Finds the tensor at a place, or its alias. Returns null if the file has neither.
  const StoredTensor* tensor_at(const Place& place) const {
    const StoredTensor* tensor =
        layout_ == nullptr ? weights_.find(place.name) : find(*layout_, place.name);
    if (tensor != nullptr) return tensor;
    for (const WeightLayout::Alias& alias : aliases()) {
      if (alias.name == place.name) return tensor_at({.name = alias.of});
    }
    return nullptr;
  }

  bool may_be_left(const StoredTensor& tensor) const {
    if (layout_ == nullptr) return false;
    std::string_view name = tensor.name;
    if (name.starts_with(layout_->prefix)) name.remove_prefix(layout_->prefix.size());
    if (layout_->is_ignored(name)) return true;
    for (const WeightLayout::Alias& alias : aliases()) {
      if (alias.name != tensor.name) continue;
      const StoredTensor* const other = tensor_at({.name = alias.of});
      if (other == nullptr) return false;
      if (tensor.dtype == other->dtype && std::ranges::equal(tensor.bytes, other->bytes)) {
        return true;
      }
      throw_data_error(path_, fmt::format("'{}' is not equal to '{}', which this model takes for "
                                          "both; {} gives it both",
                                          tensor.name, other->name, alias.remedy));
    }
    return false;
  }

  std::span<const WeightLayout::Alias> aliases() const {
    if (layout_ == nullptr) return {};
    return layout_->aliases;
  }

  const std::filesystem::path& path_;
  const StoredWeights& weights_;
  const WeightLayout* layout_ = nullptr;  // null if the file has the model's own names
  std::set<std::string> names_;
  SharedWeights result_;
};

SharedWeights import_all(const std::filesystem::path& path, ParameterSet& parameters,
                         std::span<const WeightLayout> layouts) {
  const StoredWeights weights(path);
  Import import(path, weights);
  if (parameters.size() > 0) import.find_layout(parameters[0].name(), layouts);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    import.fill(parameters[i].name(), parameters[i].shape(), parameters[i].value());
  }
  for (Buffer& buffer : parameters.buffers()) {
    import.fill(buffer.name, buffer.value.shape(), buffer.value.span());
  }
  return import.result();
}

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

StoredWeights::StoredWeights(const std::filesystem::path& path) : path_(path) {
  if (std::filesystem::is_directory(path)) {
    checkpoint_.emplace(path, 0, 1);
    tensors_ = checkpoint_->shared_tensors(WeightAverage::kMeans);
    if (tensors_.empty()) tensors_ = checkpoint_->shared_tensors(kWeights);
    std::ranges::move(checkpoint_->shared_tensors(kBuffers), std::back_inserter(tensors_));
  } else {
    file_.emplace(path);
    tensors_ = file_->tensors();
  }
}

const StoredTensor* StoredWeights::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &StoredTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void StoredWeights::copy(const StoredTensor& tensor, std::span<float> values) const {
  if (tensor.dtype == "F32") {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.dtype == "BF16") {
    widen<BFloat16>(tensor.bytes, values);
  } else if (tensor.dtype == "F16") {
    widen<Float16>(tensor.bytes, values);
  } else {
    throw_data_error(path_,
                     fmt::format("'{}' is {}, not F32, F16 or BF16", tensor.name, tensor.dtype));
  }
}

TextFiles vocabularies_of(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path);
  // A path that ends with a slash has an empty last component.
  const std::filesystem::path named = whole.has_filename() ? whole : whole.parent_path();
  const std::filesystem::path folder = named.parent_path();
  if (std::filesystem::is_directory(named)) return read_text_files(folder / kTokenizerFolder);
  TextFiles files = select_text_files(SafetensorsFile(named).metadata(), path);
  return files.empty() ? read_text_files(folder) : files;
}

TextFiles vocabularies_at(const std::filesystem::path& path) {
  for (const std::filesystem::path& folder : {path, path / kTokenizerFolder}) {
    TextFiles files = read_text_files(folder);
    if (!files.empty()) return files;
  }
  return vocabularies_of(path);
}

void import_weights(const std::filesystem::path& path, ParameterSet& parameters,
                    std::span<const WeightLayout> layouts) {
  const SharedWeights shared = import_all(path, parameters, layouts);
  if (!shared.begun_new.empty()) {
    throw_data_error(path, fmt::format("it has no '{}'", shared.begun_new.front()));
  }
  if (!shared.left.empty()) {
    throw_data_error(path, fmt::format("this model has no '{}'", shared.left.front()));
  }
}

SharedWeights import_shared_weights(const std::filesystem::path& path, ParameterSet& parameters) {
  SharedWeights shared = import_all(path, parameters, {});
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
      if (tensor.shape.size() != 2) {
        throw_data_error(path,
                         fmt::format("'{}' has {} dimensions, and the layout {} takes matrices",
                                     tensor.name, tensor.shape.size(), layout.name));
      }
      Tensor columns({tensor.shape[1], tensor.shape[0]});
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
