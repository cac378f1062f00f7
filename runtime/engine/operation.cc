#include "runtime/engine/operation.h"

#include <fmt/format.h>

#include "fusion/gradient.h"

namespace kolo {

std::string Operation::signature() const {
  const std::size_t shape[] = {buffer.count};
  const char* const place = buffer.memory == MemoryKind::kDevice ? " on device"
                            : input != nullptr                   ? " out of place"
                                                                 : "";
  switch (kind) {
    case OperationKind::kAllReduce:
      return fmt::format("'{}': all_reduce {} {}{}", name, describe_shape(buffer.dtype, shape),
                         to_string(op), place);
    case OperationKind::kBroadcast:
      return fmt::format("'{}': broadcast {} from rank {}{}", name,
                         describe_shape(buffer.dtype, shape), root, place);
    case OperationKind::kBarrier:
      return fmt::format("'{}': barrier", name);
    case OperationKind::kClose:
      return "the end of the job";
  }
  return {};
}

OperationShape OperationShape::of(const Operation& operation) {
  return {.kind = operation.kind,
          .count = operation.buffer.count,
          .dtype = operation.buffer.dtype,
          .memory = operation.buffer.memory,
          .out_of_place = operation.input != nullptr,
          .op = operation.op,
          .root = operation.root};
}

}  // namespace kolo
