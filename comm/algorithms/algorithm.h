#pragma once

#include <string_view>

#include "comm/algorithms/compile_options.h"
#include "comm/schedule/collective_spec.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// The arguments of `compile` except the rank. All ranks pass equal values. The referenced objects
/// must outlive this struct.
struct CompileContext {
  const CollectiveSpec& spec;
  const BucketLayout& layout;
  const ProcessGrid& grid;
  const CompileOptions& options;
};

/// Predicted times in microseconds.
struct Price {
  double us = 0;       ///< Time until the slowest rank is done. It is infinite if the algorithm
                       ///< cannot run the spec.
  double busy_us = 0;  ///< Portion of `us` during which other buckets cannot make progress.
};

/// One algorithm for collectives: its name, steps, price and limits, all defined in one source
/// file. Several algorithms may share a name if they serve different specs. registry.h lists all.
///
/// All host-memory algorithms that "auto" compares by price add contributions in the same order:
/// first the ranks of each node in rank order, then the nodes in node order. 16-bit floats are
/// summed at one rank, in rank order. Therefore the choice of algorithm changes no bit of the
/// result. The native library of a device (NCCL) sums in an order that Kolo does not control.
///
/// Threads: any; immutable.
class Algorithm {
 public:
  virtual std::string_view name() const = 0;

  /// Whether the algorithm can serve the context's spec, layout and grid.
  virtual bool serves(const CompileContext& context) const = 0;
  /// Whether "auto" considers the algorithm. Before: `serves(context)`.
  virtual bool is_for_auto(const CompileContext&) const { return true; }
  /// Checks that the algorithm can run if the user asks for it by name. Before: `serves(context)`.
  /// Errors: KoloError(kConfig) that gives the reason and the alternatives.
  virtual void check(const CompileContext&) const {}

  /// Predicts the time for the context's bucket. Before: `serves(context)`.
  virtual Price price(const CompileContext& context) const = 0;
  /// The best chunk size for buckets of this algorithm, in bytes.
  virtual std::size_t chunk_bytes(const CompileContext& context) const {
    return context.options.chunk_bytes;
  }
  /// Whether each element is summed at one rank, in rank order. If true, bucket and chunk sizes
  /// change no bit of the result.
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
