#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::trainer {

/// How files of other programs name and store the weights of a model.
struct WeightLayout {
  /// Where such a file has a weight.
  struct Place {
    std::string name;
    bool is_transposed = false;  ///< A matrix: its rows are the columns of the model's.
  };
  /// A tensor that a file may lack, or have although the model does not: then it equals another.
  struct Alias {
    std::string name;
    std::string of;
    std::string remedy;  ///< Option with which the model has both.
  };

  std::string name;    ///< For --layout.
  std::string help;    ///< In a few words.
  std::string prefix;  ///< Begins names in some of these files and not in others.
  std::vector<Alias> aliases;
  /// Parameters without which a model cannot be stored so.
  std::vector<std::string> needed;
  /// The place of a parameter of the model, with prefix; empty if the layout has none.
  std::function<std::optional<Place>(const std::string& parameter)> place_of;
  /// Whether files have such a tensor that is no weight. `name` comes without prefix.
  std::function<bool(std::string_view name)> is_ignored;
};

}  // namespace kolo::trainer
