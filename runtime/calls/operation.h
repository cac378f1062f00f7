#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"
#include "comm/device/device.h"
#include "comm/schedule/goal.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/rows/row_sums.h"

namespace kolo {

using OperationKind = GoalKind;

/// Every kind that is called, for loops.
inline constexpr auto kAllOperationKinds = values_where<kGoals, is_called>();

/// Who gives an operation its name. Users may give any to theirs: they are apart from the others,
/// of which those of steps contain a colon.
enum class NameSpace : std::uint8_t {
  kUser,
  kStep,     ///< A call that several operations make up, to all but its first one.
  kRuntime,  ///< What has no other name, as barriers and splits.
};

/// A row-sparse all-reduce, as all ranks must call it alike.
struct RowCall {
  std::vector<RowTable> tables;
  RowOptions options;

  friend bool operator==(const RowCall&, const RowCall&) = default;
};

/// "sparse_all_reduce float32 [10, 4] + [20, 8] sum, result auto, exchange auto".
std::string to_string(const RowCall& call);

struct Operation;

/// The signature without the name, for comparing.
struct OperationShape {
  OperationKind kind = OperationKind::kBarrier;
  std::vector<std::size_t> counts = {};
  std::vector<std::size_t> tensors = {};  ///< Their elements, as `TensorBuffers::count`.
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  bool out_of_place = false;
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};  ///< Those on which ranks agree.
  std::optional<DType> wire = {};
  int root = 0;
  std::optional<RowCall> rows = {};

  static OperationShape of(const Operation& operation);
  /// Whether that is the shape of `operation`; allocates nothing.
  bool fits(const Operation& operation) const;
};

/// A rank's buffers of a tensor: what it has of it, part by part.
struct TensorBuffers {
  const void* input = nullptr;  ///< Out of place: the contribution; null where there is none.
  void* result = nullptr;       ///< Null where there is none.
  /// Elements of each part; of the tensor, if the operation knows no parts. 0 where they differ.
  std::size_t count = 0;
};

/// One collective call, as a user's thread submits it.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  std::string name = {};
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  /// None for operations without elements. A part of the operation is made up of the parts of all
  /// tensors, one after the other.
  std::vector<TensorBuffers> tensors = {};
  /// The same on all ranks. Gathers and scatters always are; at a root that works in place the
  /// smaller buffer is its part of the other one.
  bool out_of_place = false;
  /// Where not all parts of each tensor are equal: elements of each rank's part, or of each pair's,
  /// sender by sender; those of the first tensor, then those of the next.
  std::vector<std::size_t> counts = {};
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};
  /// `Reduction::wire_dtype`, where it is not that of the elements.
  std::optional<DType> wire = {};
  int root = 0;
  /// Device memory: behind what the caller's stream does to the buffer; null when that is done.
  std::shared_ptr<const Event> ready = {};
  /// The row-sparse all-reduce of which this is the first operation; empty for all others.
  std::optional<RowCall> rows = {};
  NameSpace space = NameSpace::kUser;
  /// Its number, from 1, among those of a group that keeps one order; 0: the group keeps none.
  std::uint64_t place = 0;
  /// Memory that its buffers point to, kept until it is over; null for a caller's buffers.
  std::shared_ptr<const void> kept = {};
  std::shared_ptr<TicketState> ticket = std::make_shared<TicketState>();

  /// The last default name, and the shape that it describes.
  struct Described {
    OperationShape shape;
    std::string text;
  };
  std::optional<Described> described = {};

  /// "all_reduce float32 [10] sum".
  std::string arguments() const;
  /// The same, which is the name of an operation without one. It is kept for the next operation in
  /// this place (see `OperationPool`), mostly a call like this one.
  const std::string& default_name();
  /// What all ranks must submit alike: "'x': all_reduce float32 [10] sum".
  std::string signature() const;

  /// Elements of a part of one tensor.
  std::size_t count_in(std::size_t tensor, std::size_t part) const;

  /// An all-to-all in place: results would replace what is still to be sent.
  bool sends_copy() const { return has_pairs(kind) && !out_of_place; }

  /// The goal for the numbers that carry its elements, in which each part has elements of all
  /// tensors. Before: it moves elements, and every rank submits it alike.
  Goal goal(int world_size) const { return merged(goal_of_tensors(world_size)); }
  /// The same, with parts for each tensor.
  Goal goal_of_tensors(int world_size) const;
};

}  // namespace kolo
