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
#include "comm/schedule/collective_spec.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

using OperationKind = CollectiveKind;

/// Every kind of operation that users call, for loops.
inline constexpr auto kAllOperationKinds = values_where<kCollectiveTraits, is_called>();

/// The origin of an operation's name. Users may choose any name; names of the library are in
/// namespaces of their own. Those of steps contain a colon.
enum class NameSpace : std::uint8_t {
  kUser,
  kStep,     ///< An operation after the first of a composite call.
  kRuntime,  ///< Operations without another name, such as barriers and splits.
};

/// A row-sparse all-reduce, as all ranks must call it.
struct RowCall {
  std::vector<RowTable> tables;
  RowOptions options;

  friend bool operator==(const RowCall&, const RowCall&) = default;
};

/// "sparse_all_reduce float32 [10, 4] + [20, 8] sum, result auto, exchange auto".
std::string to_string(const RowCall& call);

struct Operation;

/// The signature without the name, for comparisons.
struct OperationShape {
  OperationKind kind = OperationKind::kBarrier;
  std::vector<std::size_t> counts = {};
  std::vector<std::size_t> tensors = {};  ///< Their elements, as `TensorBuffers::count`.
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  bool out_of_place = false;
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};  ///< The scales that ranks must agree on.
  std::optional<DType> wire = {};
  int root = 0;
  std::optional<RowCall> rows = {};

  static OperationShape of(const Operation& operation);
  /// Whether `operation` has this shape; allocates nothing.
  bool fits(const Operation& operation) const;
};

/// A rank's buffers of one tensor. They hold its parts one after the other.
struct TensorBuffers {
  const void* input = nullptr;  ///< Out of place: the contribution; null without one.
  void* result = nullptr;       ///< Null without one.
  /// Elements of each part, or of the tensor if the operation has no parts. 0 if parts differ.
  std::size_t count = 0;
};

/// One collective call, as a user's thread submits it.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  std::string name = {};
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  /// Empty for operations without elements. A part of the operation consists of the parts of all
  /// tensors, one after the other.
  std::vector<TensorBuffers> tensors = {};
  /// Equal on all ranks. Always true for gathers and scatters; at a root that works in place the
  /// smaller buffer is its part of the larger one.
  bool out_of_place = false;
  /// Elements of each rank's part (or of each pair's, ordered by sender) for each tensor in turn.
  /// Empty if all parts of each tensor are equal.
  std::vector<std::size_t> counts = {};
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};
  /// `Reduction::wire_dtype`, if it differs from the dtype of the elements.
  std::optional<DType> wire = {};
  int root = 0;
  /// For device memory: event after the caller's work on the buffer; null once that is done.
  std::shared_ptr<const Event> ready = {};
  /// The row-sparse all-reduce that begins with this operation; empty for all other operations.
  std::optional<RowCall> rows = {};
  NameSpace space = NameSpace::kUser;
  /// Its number, from 1, in a group that keeps one order; 0 in any other group.
  std::uint64_t place = 0;
  /// Owner of the memory that its buffers point to, until it is over; null for a caller's buffers.
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
  /// The arguments, which name an operation without a name. The text is cached for the next
  /// operation that reuses this object (see `OperationPool`), which is mostly an equal call.
  const std::string& default_name();
  /// The text that must be equal on all ranks: "'x': all_reduce float32 [10] sum".
  std::string signature() const;

  /// Number of elements of a part of one tensor.
  std::size_t count_in(std::size_t tensor, std::size_t part) const;

  /// An all-to-all in place sends from a copy: results would overwrite elements that are still to
  /// be sent.
  bool sends_copy() const { return has_pairs(kind) && !out_of_place; }

  /// The spec, in terms of the numbers that store its elements; each part has elements of all
  /// tensors. Precondition: it moves elements, and every rank submits it with these arguments.
  CollectiveSpec spec(int world_size) const { return merged(spec_of_tensors(world_size)); }
  /// As `spec`, with separate parts for each tensor.
  CollectiveSpec spec_of_tensors(int world_size) const;
};

}  // namespace kolo
