#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {

inline constexpr std::string_view kHierarchical = "hierarchical";

/// `local` inside nodes, `cross` between them.
struct Hierarchy {
  const FlatAllReduce* local = nullptr;  ///< Must have halves.
  const FlatAllReduce* cross = nullptr;  ///< Must have an exchange.
};

/// An all-reduce of a bucket: flat, between all ranks, or a hierarchy of two flat ones.
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
  /// The flat algorithm, or the hierarchy's CROSS.
  const FlatAllReduce& between_nodes() const;

  bool takes(MemoryKind memory) const;
  bool needs_native() const { return flat() != nullptr && flat()->needs_native; }
  bool maps_memory() const { return flat() != nullptr && flat()->maps_memory; }
  /// Whether "auto" may consider it for buckets in this kind of memory. A hierarchy qualifies if
  /// its LOCAL is the preferred one there.
  bool is_for_auto(MemoryKind memory) const;

 private:
  std::variant<const FlatAllReduce*, Hierarchy> form_;
  std::string name_;
};

/// All all-reduces: flat ones, then hierarchies. Among equally cheap ones the earlier is preferred.
std::span<const AllReduce> all_reduces();
/// The all-reduce with this name: "NAME" or "hierarchical:LOCAL,CROSS". Errors: UsageError that
/// names the unknown part, the valid names and the nearest one.
const AllReduce& find_all_reduce(std::string_view name);
/// Errors: as `find_all_reduce`, if `name` has the form of a hierarchy's name.
void check_hierarchy(std::string_view name);

}  // namespace kolo
