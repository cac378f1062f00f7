#pragma once

#include <string_view>

#include "comm/algorithms/compile_options.h"
#include "comm/schedule/goal.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// The arguments of a compilation, equal on all ranks. Refers to values that outlive it.
struct CompileContext {
  const Goal& goal;
  const BucketLayout& layout;
  const ProcessGrid& grid;
  const CompileOptions& options;
};

/// Predicted times in microseconds.
struct Price {
  double us = 0;       ///< Until the slowest rank is done; infinite: the algorithm cannot do it.
  double busy_us = 0;  ///< The part of it that other buckets cannot use.
};

/// One way to reach goals: its name, its steps, its price and its limits, in the file that defines
/// its steps. Several may have one name, for different goals. See registry.h for the list.
///
/// Those in host memory that a price may choose make the same sums: of the ranks of each node in
/// their order, then of the nodes in theirs; 16-bit floats in one place, in the order of ranks. So
/// no bit depends on which of them runs. The library of a device sums in an order of its own.
///
/// Threads: immutable; any.
class Algorithm {
 public:
  virtual std::string_view name() const = 0;

  /// Whether it reaches such goals, in such memory, on nodes like these.
  virtual bool serves(const CompileContext& context) const = 0;
  /// Whether "auto" considers it. Before: it serves them.
  virtual bool is_for_auto(const CompileContext&) const { return true; }
  /// Before: it serves them. Errors: KoloError(kConfig) if nobody may have it, even who asks for
  /// it: says why, and what there is.
  virtual void check(const CompileContext&) const {}

  /// Before: it serves them.
  virtual Price price(const CompileContext& context) const = 0;
  /// The best size of the chunks that its buckets are cut into.
  virtual std::size_t chunk_bytes(const CompileContext& context) const {
    return context.options.chunk_bytes;
  }
  /// Each element is summed at one rank, in the order of ranks: the same bits however buckets and
  /// chunks are cut.
  virtual bool sums_in_one_place() const { return false; }

  /// Appends the steps of the builder's rank. All ranks call it with equal arguments. Pure.
  virtual void append(ScheduleBuilder& builder, const CompileContext& context) const = 0;

 protected:
  constexpr Algorithm() = default;
  constexpr Algorithm(const Algorithm&) = default;
  constexpr Algorithm& operator=(const Algorithm&) = default;
  ~Algorithm() = default;
};

}  // namespace kolo
