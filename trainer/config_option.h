#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kolo::trainer {

/// The finite numbers that an option takes.
struct ConfigRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool has_least = true;  ///< Whether `least` itself is one.
  bool has_most = true;

  bool holds(double value) const;
  std::string words() const;  ///< "at least 0 and below 1"; empty if every number is taken.
};

inline constexpr ConfigRange kAny{};  ///< Texts and switches, too.
inline constexpr ConfigRange kAtLeastOne{.least = 1};
inline constexpr ConfigRange kNotNegative{.least = 0};
inline constexpr ConfigRange kPositive{.least = 0, .has_least = false};
inline constexpr ConfigRange kShare{.least = 0, .most = 1};
inline constexpr ConfigRange kShareBelowOne{.least = 0, .most = 1, .has_most = false};

/// The texts that an option takes.
using Choices = std::vector<std::string>;

/// A text of its own form.
struct TextForm {
  std::string name;  ///< "DTYPE"
  /// Checks a text, and returns it in the form in which ranks and runs compare it.
  std::string (*parse)(const std::string& text) = nullptr;
};

/// Unless it has one of the first two, an option is the same on all ranks and in all runs that go
/// on from one's checkpoints.
enum ConfigTraits : unsigned {
  kOfRanks = 1,    ///< It is the same on all ranks; a resumed run may have another.
  kOfRank = 2,     ///< Each rank may have its own.
  kNotOnGpus = 4,  ///< Models on a GPU offer its default alone.
  kNewer = 8,      ///< Checkpoints may be older, and lack it where it has its default.
};

/// An option of the trainer, bound to its field of one `Config`. Command line, help, errors, and
/// what ranks and resumed runs compare are made from it.
struct ConfigOption {
  using Field =
      std::variant<bool*, int*, std::size_t*, float*, double*, std::string*, std::filesystem::path*,
                   std::optional<std::size_t>*, std::optional<double>*>;

  std::string name;  ///< "--dropout"
  Field field;
  std::string help;
  std::variant<ConfigRange, Choices, TextForm> values = {};
  unsigned traits = 0;  ///< Of ConfigTraits.

  /// The value in the form in which ranks and runs compare it; "none" where there is none.
  std::string text() const;
  /// Errors: KoloError(kConfig) naming option and range; UsageError naming the choices.
  void check_value() const;
};

}  // namespace kolo::trainer
