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

/// All kinds of operations that users call, for loops.
inline constexpr auto kAllOperationKinds = values_where<kCollectiveTraits, is_called>();

/// The namespace of an operation's name. Users may choose any name, because names of the library
/// are in other namespaces. Names of steps contain a colon.
enum class NameSpace : std::uint8_t {
  kUser,
  kStep,     ///< An operation after the first of a composite call.
  kRuntime,  ///< Operations without another name, such as barriers and splits.
};

/// Arguments of a row-sparse all-reduce that must be equal on all ranks.
struct RowCall {
  std::vector<RowTable> tables;
  RowOptions options;

  friend bool operator==(const RowCall&, const RowCall&) = default;
};

/// Formats a call: "sparse_all_reduce float32 [10, 4] + [20, 8] sum, result auto, exchange auto".
std::string to_string(const RowCall& call);

struct Operation;

/// The signature of an operation without its name, for comparisons.
struct OperationShape {
  OperationKind kind = OperationKind::kBarrier;
  std::vector<std::size_t> counts = {};
  std::vector<std::size_t> tensors = {};  ///< `TensorBuffers::count` of each tensor.
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  bool out_of_place = false;
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};  ///< The scales that ranks must agree on.
  std::optional<DType> wire = {};
  int root = 0;
  std::optional<RowCall> rows = {};

  static OperationShape of(const Operation& operation);
  /// Returns whether `operation` has this shape; allocates nothing.
  bool fits(const Operation& operation) const;
};

/// A rank's buffers for one tensor. The parts of the tensor are contiguous in each buffer.
struct TensorBuffers {
  const void* input = nullptr;  ///< The contribution out of place; null if there is none.
  void* result = nullptr;       ///< The result, or the tensor in place; null if there is none.
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
  /// Equal on all ranks. Always true for gathers and scatters; at a root that works in place, the
  /// smaller buffer is a part of the larger one.
  bool out_of_place = false;
  /// Elements of each part, tensor after tensor: one count per rank or, in an all-to-all, one per
  /// pair of ranks, ordered by sender. Empty if all parts of each tensor have one size.
  std::vector<std::size_t> counts = {};
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};
  /// `Reduction::wire_dtype`, if it differs from the dtype of the elements.
  std::optional<DType> wire = {};
  int root = 0;
  /// Event after the caller's work on buffers in device memory; null if there is none to wait for.
  std::shared_ptr<const Event> ready = {};
  /// The row-sparse all-reduce that begins with this operation; empty for all other operations.
  std::optional<RowCall> rows = {};
  NameSpace space = NameSpace::kUser;
  /// Position of the operation, from 1, in a group that keeps one order; 0 in other groups.
  std::uint64_t place = 0;
  /// Keeps the memory of the buffers alive until the operation is over; null if the caller does so.
  std::shared_ptr<const void> kept = {};
  std::shared_ptr<TicketState> ticket = std::make_shared<TicketState>();

  /// A default name, and the shape of the operation from which it was made.
  struct Described {
    OperationShape shape;
    std::string text;
  };
  std::optional<Described> described = {};

  /// Formats the arguments: "all_reduce float32 [10] sum".
  std::string arguments() const;
  /// Returns the arguments as the name of an operation that the caller left unnamed. Caches the
  /// text, because the next operation in this object (see `OperationPool`) is mostly an equal call.
  const std::string& default_name();
  /// Returns the text that must be equal on all ranks: "'x': all_reduce float32 [10] sum".
  std::string signature() const;

  /// Returns the number of elements of a part of one tensor.
  std::size_t count_in(std::size_t tensor, std::size_t part) const;

  /// Returns true for an all-to-all in place. It sends from a copy, because results would overwrite
  /// elements before they are sent.
  bool sends_copy() const { return has_pairs(kind) && !out_of_place; }

  /// Returns the spec of the operation, which counts stored numbers (see `StorageType`). Each part
  /// has elements of all tensors. Precondition: the arguments are equal on all ranks.
  CollectiveSpec spec(int world_size) const { return merged(spec_of_tensors(world_size)); }
  /// Returns the spec with separate parts for each tensor.
  CollectiveSpec spec_of_tensors(int world_size) const;
};

}  // namespace kolo
