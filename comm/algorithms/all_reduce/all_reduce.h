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
  const FlatAllReduce* local = nullptr;  ///< Has halves.
  const FlatAllReduce* cross = nullptr;  ///< Has an exchange.
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

  /// Null for a hierarchy.
  const FlatAllReduce* flat() const;
  /// Null for a flat one.
  const Hierarchy* hierarchy() const { return std::get_if<Hierarchy>(&form_); }
  /// The flat one, or CROSS.
  const FlatAllReduce& between_nodes() const;

  bool takes(MemoryKind memory) const;
  bool needs_native() const { return flat() != nullptr && flat()->needs_native; }
  bool maps_memory() const { return flat() != nullptr && flat()->maps_memory; }
  /// "auto" may consider it for buckets in this kind of memory: of hierarchies, those whose LOCAL
  /// is the preferred one there.
  bool is_for_auto(MemoryKind memory) const;

 private:
  std::variant<const FlatAllReduce*, Hierarchy> form_;
  std::string name_;
};

/// All of them, preferred first among equals: flat ones, then hierarchies.
std::span<const AllReduce> all_reduces();
/// The one of this name: "NAME" or "hierarchical:LOCAL,CROSS". Errors: UsageError that says which
/// part is unknown, what there is and what is nearest.
const AllReduce& find_all_reduce(std::string_view name);
/// Errors: as `find_all_reduce`, if the name is meant for a hierarchy.
void check_hierarchy(std::string_view name);

}  // namespace kolo
