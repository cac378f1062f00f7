#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/base/buffer_view.h"
#include "comm/device/device.h"
#include "runtime/engine/ticket_state.h"

namespace kolo {

enum class OperationKind : std::uint8_t { kAllReduce, kBroadcast, kBarrier, kClose };

/// One collective call on one buffer, as a user's thread submits it.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  std::string name = {};
  BufferView buffer = {};
  /// Out of place: the contribution, of the buffer's size; null where `buffer` holds it.
  const void* input = nullptr;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  /// Device memory: behind what the caller's stream does to the buffer; null when that is done.
  std::shared_ptr<const Event> ready = {};
  std::shared_ptr<TicketState> ticket = std::make_shared<TicketState>();

  /// What all ranks must submit alike: "'x': all_reduce float32 [10] sum".
  std::string signature() const;
};

/// The signature without the name, for comparing.
struct OperationShape {
  OperationKind kind = OperationKind::kBarrier;
  std::size_t count = 0;
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  bool out_of_place = false;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;

  static OperationShape of(const Operation& operation);
  friend bool operator==(const OperationShape&, const OperationShape&) = default;
};

}  // namespace kolo
