#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/reduction.h"
#include "comm/device/pinned_mirror.h"
#include "runtime/calls/operation.h"

namespace kolo {

/// Device memory for the parts of a rank that has joined, which has none of its own. It is kept
/// from one operation to the next: to allocate may wait for the device, which others may wait for.
///
/// Threads: the engine's.
class StandInMemory {
 public:
  /// What one operation has, until it lets go of it.
  class Block {
   public:
    Block(Device& device, std::size_t bytes);

    std::byte* data() const { return memory_.data(); }
    std::size_t bytes() const { return memory_.bytes(); }

    /// Enqueues `count` elements that change no result of `op`. See fill_neutral.
    void fill(Stream& up, std::size_t count, DType dtype, ReduceOp op);
    /// After them.
    const Event& filled() const { return *filled_; }

   private:
    DeviceMemory memory_;
    DeviceMemory pattern_;  // pinned: the beginning of what `fill` writes, again and again
    std::unique_ptr<Event> filled_;
  };

  /// `copies` outlives it.
  explicit StandInMemory(CopyLane& copies) : copies_(copies) {}

  CopyLane& copies() { return copies_; }
  /// At least `bytes` that no operation has. Errors: KoloError(kResources).
  std::shared_ptr<Block> take(std::size_t bytes);

 private:
  CopyLane& copies_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

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
