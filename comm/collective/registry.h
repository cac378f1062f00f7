#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "comm/collective/algorithm.h"

namespace kolo {

/// All algorithms, preferred first among equals. Cost for n ranks and S bytes, per rank: messages
/// sent; bytes sent.
///
///   direct             2(n-1)            2(n-1)/n S     two rounds; sums in group order
///   flat               n-1               (n-1) S        one round; sums in group order
///   native             -                 -              one call of the device's own library
///   ring               2(n-1)            2(n-1)/n S     neighbours only
///   tree               log2 n (root)     log2 n S       2 log2 n rounds
///   halving_doubling   2 log2 n          2(n-1)/n S     + S and a hop each way unless n = 2^k
std::span<const AlgorithmEntry* const> algorithm_entries();

/// `local` inside nodes, `cross` between them.
struct Hierarchy {
  const AlgorithmEntry* local = nullptr;  ///< Has halves.
  const AlgorithmEntry* cross = nullptr;  ///< Has an exchange.

  friend bool operator==(const Hierarchy&, const Hierarchy&) = default;
};

/// How a bucket is summed: an algorithm of the registry between all ranks, or a hierarchy of two.
/// A value: text is parsed once, where it enters, and no other code compares names.
class Algorithm {
 public:
  /// Errors: internal if an entry of a hierarchy lacks what its place asks for.
  explicit Algorithm(const AlgorithmEntry& flat) : form_(&flat) {}
  explicit Algorithm(Hierarchy hierarchy);

  /// Reads what `to_string` writes: "NAME" or "hierarchical:LOCAL,CROSS".
  /// Errors: UsageError that says which part is unknown, what there is and what is nearest.
  static Algorithm parse(std::string_view text);
  std::string to_string() const;

  /// The entry of a flat algorithm; null for a hierarchy.
  const AlgorithmEntry* flat() const;
  /// Null for a flat algorithm.
  const Hierarchy* hierarchy() const { return std::get_if<Hierarchy>(&form_); }
  /// The algorithm between nodes: the flat algorithm or CROSS.
  const AlgorithmEntry& between_nodes() const;

  bool takes(MemoryKind memory) const;
  /// See `AlgorithmEntry`; of a hierarchy on both levels.
  bool sums_in_one_place() const;
  bool needs_native() const { return flat() != nullptr && flat()->needs_native; }
  bool maps_memory() const { return flat() != nullptr && flat()->maps_memory; }

  friend bool operator==(const Algorithm&, const Algorithm&) = default;

 private:
  std::variant<const AlgorithmEntry*, Hierarchy> form_;
};

/// All algorithms that sum buckets in this kind of memory: flat ones, then hierarchies.
std::vector<Algorithm> algorithms_for(MemoryKind memory);

/// Hierarchies whose LOCAL is the preferred one for this kind of memory.
std::vector<Algorithm> hierarchies_for(MemoryKind memory);

/// The value of an option: the cheapest of all, the cheapest hierarchy, or one algorithm.
class AlgorithmRequest {
 public:
  AlgorithmRequest() = default;  ///< "auto"
  /// "auto", "hierarchical" or the text of an algorithm. Errors: as `Algorithm::parse`.
  AlgorithmRequest(std::string_view text);  // NOLINT(google-explicit-constructor)
  AlgorithmRequest(const char* text) : AlgorithmRequest(std::string_view(text)) {}         // NOLINT
  AlgorithmRequest(const std::string& text) : AlgorithmRequest(std::string_view(text)) {}  // NOLINT
  AlgorithmRequest(Algorithm algorithm) : algorithm_(algorithm) {}                         // NOLINT

  /// The algorithm, if one was named.
  const std::optional<Algorithm>& algorithm() const { return algorithm_; }
  bool is_auto() const { return !algorithm_ && !any_hierarchy_; }
  /// Any hierarchy, whichever costs least.
  bool is_any_hierarchy() const { return any_hierarchy_; }

 private:
  std::optional<Algorithm> algorithm_;
  bool any_hierarchy_ = false;
};

/// The texts that an AlgorithmRequest takes, for help and errors: "auto", each name,
/// "hierarchical" and "hierarchical:LOCAL,CROSS".
std::vector<std::string> algorithm_texts();

}  // namespace kolo
