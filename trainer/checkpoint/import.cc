#include "trainer/checkpoint/import.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/checkpoint/stored_weights.h"
#include "trainer/data/data_error.h"
#include "trainer/tensor.h"

namespace kolo::trainer {
namespace {

using Place = WeightLayout::Place;

/// The tensors of one file or checkpoint, as a model asks for them.
class Import {
 public:
  Import(const std::filesystem::path& path, const StoredWeights& weights)
      : path_(path), weights_(weights) {}

  /// Takes the first of `layouts` that has this parameter, unless it is there under its own name.
  void find_layout(const std::string& parameter, std::span<const WeightLayout> layouts) {
    if (weights_.find(parameter) != nullptr) return;
    for (const WeightLayout& layout : layouts) {
      const std::optional<Place> place = layout.place_of(parameter);
      if (!place || find(layout, place->name) == nullptr) continue;
      layout_ = &layout;
      return;
    }
  }

  /// Takes the values if the file has them.
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

  /// After all parameters: what came of them, and of the tensors that were not asked for.
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

  /// `name` has the prefix of the layout, which the file may leave out.
  const StoredTensor* find(const WeightLayout& layout, const std::string& name) const {
    const StoredTensor* tensor = weights_.find(name);
    if (tensor != nullptr || !name.starts_with(layout.prefix)) return tensor;
    return weights_.find(name.substr(layout.prefix.size()));
  }

  /// A name of the layout without its prefix, where the file leaves that out.
  std::string name_in_file(const std::string& name) const {
    const auto has_prefix = [this](const StoredTensor& tensor) {
      return tensor.name.starts_with(layout_->prefix);
    };
    if (layout_ == nullptr || !name.starts_with(layout_->prefix)) return name;
    if (std::ranges::any_of(weights_.tensors(), has_prefix)) return name;
    return name.substr(layout_->prefix.size());
  }

  /// Null if there is none.
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
  const WeightLayout* layout_ = nullptr;  // null: the names of the model
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

}  // namespace

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

}  // namespace kolo::trainer
