#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/collective_spec.h"

namespace kolo {

/// Value of the option `algorithm`: "auto" (the cheapest algorithm), or algorithm names separated
/// by semicolons, each optionally for one collective: "ring;broadcast:tree;reduce:auto". A name
/// given for the spec's collective takes precedence over one given for all. "hierarchical" names
/// the cheapest hierarchy. The text is parsed once, where it enters.
class AlgorithmRequest {
 public:
  AlgorithmRequest() = default;  ///< "auto"
  /// Errors: UsageError that names the unknown part, the valid names and the nearest one.
  AlgorithmRequest(std::string_view text);  // NOLINT(google-explicit-constructor)
  AlgorithmRequest(const char* text) : AlgorithmRequest(std::string_view(text)) {}         // NOLINT
  AlgorithmRequest(const std::string& text) : AlgorithmRequest(std::string_view(text)) {}  // NOLINT

  /// Whether no algorithm is named for specs of this kind.
  bool is_auto(CollectiveKind kind) const { return names_for(kind).empty(); }
  /// Names in order of precedence: the first one that serves the spec is used.
  std::vector<std::string_view> names_for(CollectiveKind kind) const;
  /// A copy in which `name` takes precedence over all other names for `kind`.
  AlgorithmRequest with(CollectiveKind kind, std::string_view name) const;

 private:
  struct Clause {
    std::optional<CollectiveKind> kind;
    std::string name;
  };
  std::vector<Clause> clauses_;
};

}  // namespace kolo
