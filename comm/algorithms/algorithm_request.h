#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/goal.h"

namespace kolo {

/// The value of the option `algorithm`: "auto", the cheapest of all, or names, separated by
/// semicolons, of algorithms for the goals that they serve, each for one collective if that is
/// said: "ring;broadcast:tree;reduce:auto". A name for the goal's collective comes before one for
/// all. The name "hierarchical" is that of the cheapest hierarchy. A value: text is parsed once,
/// where it enters.
class AlgorithmRequest {
 public:
  AlgorithmRequest() = default;  ///< "auto"
  /// Errors: UsageError that says which part is unknown, what there is and what is nearest.
  AlgorithmRequest(std::string_view text);  // NOLINT(google-explicit-constructor)
  AlgorithmRequest(const char* text) : AlgorithmRequest(std::string_view(text)) {}         // NOLINT
  AlgorithmRequest(const std::string& text) : AlgorithmRequest(std::string_view(text)) {}  // NOLINT

  /// No algorithm is named for such a goal.
  bool is_auto(GoalKind kind) const { return names_for(kind).empty(); }
  /// The first that serves the goal counts.
  std::vector<std::string_view> names_for(GoalKind kind) const;
  /// The same, but `name` comes before all others for `kind`.
  AlgorithmRequest with(GoalKind kind, std::string_view name) const;

 private:
  struct Clause {
    std::optional<GoalKind> kind;
    std::string name;
  };
  std::vector<Clause> clauses_;
};

}  // namespace kolo
