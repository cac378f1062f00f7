#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/collective_spec.h"

namespace kolo {

/// Parsed value of the option `algorithm`: "auto" (the cheapest algorithm), or algorithm names
/// separated by semicolons. A name may have a collective as prefix:
/// "ring;broadcast:direct;reduce:auto". For that collective, a prefixed name takes precedence over
/// names without a prefix. "hierarchical" selects the cheapest hierarchy.
class AlgorithmRequest {
 public:
  AlgorithmRequest() = default;  ///< Requests "auto".
  /// Parses `text`. Errors: UsageError with the unknown part, the valid names and the nearest one.
  AlgorithmRequest(std::string_view text);  // NOLINT(google-explicit-constructor)
  AlgorithmRequest(const char* text) : AlgorithmRequest(std::string_view(text)) {}         // NOLINT
  AlgorithmRequest(const std::string& text) : AlgorithmRequest(std::string_view(text)) {}  // NOLINT

  /// The requested names for `kind` in order of precedence. The first that serves the spec is used.
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
