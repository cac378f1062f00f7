#pragma once

#include <string_view>

#include "comm/algorithms/compile_options.h"
#include "comm/schedule/collective_spec.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// The arguments of a compilation, equal on all ranks. Refers to values that outlive it.
struct CompileContext {
  const CollectiveSpec& spec;
  const BucketLayout& layout;
  const ProcessGrid& grid;
  const CompileOptions& options;
};

/// Predicted times in microseconds.
struct Price {
  double us = 0;       ///< Until the slowest rank is done; infinite if the algorithm cannot reach
                       ///< the spec.
  double busy_us = 0;  ///< Portion of `us` during which other buckets cannot make progress.
};

/// One way to serve specs: its name, steps, price and limits, defined in the file that defines its
/// steps. Several algorithms may share a name if they serve different specs. registry.h lists them.
///
/// All host-memory algorithms among which a price may choose compute the same sums: first over the
/// ranks of each node in rank order, then over the nodes in order; 16-bit floats are summed at one
/// rank, in rank order. So the choice of algorithm changes no bit of the result. The native library
/// of a device sums in an order of its own.
///
/// Threads: any; immutable.
class Algorithm {
 public:
  virtual std::string_view name() const = 0;

  /// Whether it reaches specs of this kind, in this memory, on a grid like this one.
  virtual bool serves(const CompileContext& context) const = 0;
  /// Whether "auto" considers it. Before: it serves the spec.
  virtual bool is_for_auto(const CompileContext&) const { return true; }
  /// Before: it serves the spec. Errors: KoloError(kConfig) if it cannot run here even when asked
  /// for by name; the error gives the reason and the alternatives.
  virtual void check(const CompileContext&) const {}

  /// Before: it serves the spec.
  virtual Price price(const CompileContext& context) const = 0;
  /// The best chunk size for its buckets.
  virtual std::size_t chunk_bytes(const CompileContext& context) const {
    return context.options.chunk_bytes;
  }
  /// Whether each element is summed at one rank, in rank order. Then the bits do not depend on how
  /// buckets and chunks are cut.
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
