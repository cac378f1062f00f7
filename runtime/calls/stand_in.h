#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/calls/operation.h"
#include "runtime/calls/stand_in_memory.h"

namespace kolo {

/// What a rank that has joined needs to know to take part in an operation of others.
struct OperationTerms {
  std::string name;
  NameSpace space = NameSpace::kUser;
  OperationShape shape;
};

/// Terms as bytes for other ranks.
std::vector<std::byte> to_bytes(const OperationTerms& terms);
/// The inverse. Empty if these bytes are no terms.
std::optional<OperationTerms> operation_terms_from(std::span<const std::byte> bytes);

/// Why `rank`, which has no data, can take no part in such an operation; empty if it can.
std::string_view obstacle_to(const OperationShape& shape, int rank);

/// The part of a rank that has no data, with buffers of its own: it contributes elements that
/// change no result, and what it receives is lost. Before: there is no obstacle, and it is one
/// operation; in device memory `memory` is not null. Errors: KoloError(kResources).
std::shared_ptr<Operation> make_stand_in(const OperationTerms& terms, int world_size,
                                         StandInMemory* memory = nullptr);

}  // namespace kolo
