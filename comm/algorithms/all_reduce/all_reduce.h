#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {

inline constexpr std::string_view kHierarchical = "hierarchical";

/// A two-level all-reduce: `local` runs inside each node, `cross` between nodes.
struct Hierarchy {
  const FlatAllReduce* local = nullptr;  ///< Its `phases` must not be null.
  const FlatAllReduce* cross = nullptr;  ///< Its `exchange` must not be null.
};

/// An all-reduce algorithm for buckets: a flat one among all ranks, or a hierarchy of two flat
/// ones.
class AllReduce final : public Algorithm {
 public:
  explicit AllReduce(const FlatAllReduce& flat) : form_(&flat), name_(flat.name) {}
  explicit AllReduce(const Hierarchy& hierarchy);

  std::string_view name() const override { return name_; }
  bool serves(const CompileContext& context) const override;
  bool is_for_auto(const CompileContext& context) const override;
  void check(const CompileContext& context) const override;
  Price price(const CompileContext& context) const override;
  std::size_t chunk_bytes(const CompileContext& context) const override;
  bool sums_in_one_place() const override;
  void append(ScheduleBuilder& builder, const CompileContext& context) const override;

  /// The flat algorithm; null for a hierarchy.
  const FlatAllReduce* flat() const;
  /// The hierarchy; null for a flat algorithm.
  const Hierarchy* hierarchy() const { return std::get_if<Hierarchy>(&form_); }
  /// The algorithm used between nodes: the flat algorithm, or the hierarchy's `cross`.
  const FlatAllReduce& between_nodes() const;

  bool takes(MemoryKind memory) const;
  bool needs_native() const { return flat() != nullptr && flat()->needs_native; }
  bool maps_memory() const { return flat() != nullptr && flat()->maps_memory; }
  /// Whether "auto" may consider this algorithm for buckets in `memory`. A hierarchy qualifies only
  /// if its `local` is the first flat algorithm with phases for that memory.
  bool is_for_auto(MemoryKind memory) const;

 private:
  std::variant<const FlatAllReduce*, Hierarchy> form_;
  std::string name_;
};

/// All all-reduce algorithms: the flat ones, then the hierarchies. If two algorithms are equally
/// cheap, the earlier one is chosen.
std::span<const AllReduce> all_reduces();
/// Finds the all-reduce called `name`: "NAME" or "hierarchical:LOCAL,CROSS". Errors: UsageError
/// that names the unknown part, the valid names and the nearest one.
const AllReduce& find_all_reduce(std::string_view name);
/// Checks a name that starts with "hierarchical"; accepts all others. Errors: UsageError unless it
/// is "hierarchical:LOCAL,CROSS" with two valid names.
void check_hierarchy(std::string_view name);

}  // namespace kolo
