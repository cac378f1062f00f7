#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kolo::trainer {

/// The range of finite numbers that an option accepts.
struct ConfigRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool has_least = true;  ///< Whether `least` itself is accepted.
  bool has_most = true;

  bool holds(double value) const;
  std::string words() const;  ///< "at least 0 and below 1"; empty if every number is accepted.
};

inline constexpr ConfigRange kAny{};  ///< For texts and switches, too.
inline constexpr ConfigRange kAtLeastOne{.least = 1};
inline constexpr ConfigRange kNotNegative{.least = 0};
inline constexpr ConfigRange kPositive{.least = 0, .has_least = false};
inline constexpr ConfigRange kShare{.least = 0, .most = 1};
inline constexpr ConfigRange kShareBelowOne{.least = 0, .most = 1, .has_most = false};

/// The texts that an option accepts.
using Choices = std::vector<std::string>;

/// A text with its own syntax.
struct TextForm {
  std::string name;  ///< "DTYPE"
  /// Checks a text, and returns it in the form in which ranks and runs compare it.
  std::string (*parse)(const std::string& text) = nullptr;
};

/// Traits of an option. Without kOfRanks or kOfRank, its value must be equal on all ranks, and in
/// all runs that resume from each other's checkpoints.
enum ConfigTraits : unsigned {
  kOfRanks = 1,    ///< Equal on all ranks; a resumed run may change it.
  kOfRank = 2,     ///< Each rank may have its own.
  kNotOnGpus = 4,  ///< Models on a GPU support only its default.
  kNewer = 8,      ///< Older checkpoints may lack it, where it has its default.
};

/// An option of the trainer, bound to its field of one `Config`. The command line, its help and
/// errors, and the comparison of ranks and of resumed runs all derive from it.
struct ConfigOption {
  using Field =
      std::variant<bool*, int*, std::size_t*, float*, double*, std::string*, std::filesystem::path*,
                   std::optional<std::size_t>*, std::optional<double>*>;

  std::string name;  ///< "--dropout"
  Field field;
  std::string help;
  std::variant<ConfigRange, Choices, TextForm> values = {};
  unsigned traits = 0;  ///< A combination of ConfigTraits.

  /// The value in the form in which ranks and runs compare it; "none" if it is not set.
  std::string text() const;
  /// Errors: KoloError(kConfig) naming option and range; UsageError naming the choices.
  void check_value() const;
};

}  // namespace kolo::trainer
