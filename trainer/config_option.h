#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kolo::trainer {

/// The range of finite numbers that an option accepts.
struct ConfigRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool has_least = true;  ///< Whether `least` itself belongs to the range.
  bool has_most = true;

  bool holds(double value) const;
  std::string words() const;  ///< A text such as "at least 0 and below 1"; empty for all numbers.
};

inline constexpr ConfigRange kAny{};  ///< Every number; also for texts and switches.
inline constexpr ConfigRange kAtLeastOne{.least = 1};
inline constexpr ConfigRange kNotNegative{.least = 0};
inline constexpr ConfigRange kPositive{.least = 0, .has_least = false};
inline constexpr ConfigRange kShare{.least = 0, .most = 1};
inline constexpr ConfigRange kShareBelowOne{.least = 0, .most = 1, .has_most = false};

/// The only texts that an option accepts.
using Choices = std::vector<std::string>;

/// The syntax of an option whose value is a text.
struct TextForm {
  std::string name;  ///< Name of the value in the help text, such as "DTYPE".
  /// Checks a text and returns the canonical form in which ranks and runs compare it. If null,
  /// every text is accepted and compared as it is. Errors: those of the syntax.
  std::string (*parse)(const std::string& text) = nullptr;
};

/// Traits of an option. An option without kOfRanks and kOfRank must have the same value on all
/// ranks and in all runs that resume from each other's checkpoints.
enum ConfigTraits : unsigned {
  kOfRanks = 1,    ///< The value is equal on all ranks; a resumed run may change it.
  kOfRank = 2,     ///< The value may differ between ranks, and between runs.
  kNotOnGpus = 4,  ///< Models on a GPU support only the option's default.
  kNewer = 8,      ///< Checkpoints omit the option if it has its default, as older checkpoints do.
  kOfCall = 16,    ///< The value belongs to one start of the program; config.toml omits it.
};

/// An option of the trainer, bound to its field of one `Config`. The command line, its help and
/// errors, and the comparison of ranks and of resumed runs all derive from it.
struct ConfigOption {
  using Field =
      std::variant<bool*, int*, std::size_t*, float*, double*, std::string*, std::filesystem::path*,
                   std::optional<std::size_t>*, std::optional<double>*>;

  using Values = std::variant<ConfigRange, Choices, TextForm>;

  ConfigOption(std::string flag, Field value, Values accepted, unsigned combined, std::string words)
      : name(std::move(flag)),
        field(value),
        values(std::move(accepted)),
        traits(combined),
        help(std::move(words)) {}
  ConfigOption(std::string flag, Field value, Values accepted, std::string words)
      : ConfigOption(std::move(flag), value, std::move(accepted), 0, std::move(words)) {}
  ConfigOption(std::string flag, Field value, std::string words)
      : ConfigOption(std::move(flag), value, kAny, std::move(words)) {}

  std::string name;  ///< Name on the command line, such as "--dropout".
  Field field;
  Values values;
  unsigned traits;  ///< A combination of ConfigTraits.
  std::string help;

  /// The value in canonical form, in which ranks and runs compare it; "none" for an empty optional.
  std::string text() const;
  /// Checks the value against `values`. Errors: KoloError(kConfig) naming option and range;
  /// UsageError naming the choices; those of `TextForm::parse`.
  void check_value() const;
};

}  // namespace kolo::trainer
