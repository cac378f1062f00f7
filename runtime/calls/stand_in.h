#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/reduction.h"
#include "comm/device/bounce_buffer.h"
#include "runtime/calls/operation.h"

namespace kolo {

/// Device memory for the contributions of a rank that has joined. It is kept between operations,
/// because an allocation may wait for the device, which other ranks may wait for.
///
/// Threads: the engine's.
class StandInMemory {
 public:
  /// The memory of one operation, until it drops it.
  class Block {
   public:
    Block(Device& device, std::size_t bytes);

    std::byte* data() const { return memory_.data(); }
    std::size_t bytes() const { return memory_.bytes(); }

    /// Enqueues writing `count` elements that do not change a result of `op`. See fill_identity.
    void fill(Stream& up, std::size_t count, DType dtype, ReduceOp op);
    /// Event after the fills.
    const Event& filled() const { return *filled_; }

   private:
    DeviceMemory memory_;
    DeviceMemory pattern_;  // pinned: the pattern that `fill` repeats
    std::unique_ptr<Event> filled_;
  };

  /// `copies` outlives it.
  explicit StandInMemory(CopyStreams& copies) : copies_(copies) {}

  CopyStreams& copies() { return copies_; }
  /// A block of at least `bytes` that no operation uses. Errors: KoloError(kResources).
  std::shared_ptr<Block> take(std::size_t bytes);

 private:
  CopyStreams& copies_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

/// What a joined rank must know to take part in an operation of other ranks.
struct OperationTerms {
  std::string name;
  NameSpace space = NameSpace::kUser;
  OperationShape shape;
};

/// Terms as bytes for other ranks.
std::vector<std::byte> to_bytes(const OperationTerms& terms);
/// The inverse of `to_bytes`. Empty if the bytes are malformed.
std::optional<OperationTerms> operation_terms_from(std::span<const std::byte> bytes);

/// Why `rank`, which has no data, cannot take part in such an operation; empty if it can.
std::string_view obstacle_to(const OperationShape& shape, int rank);

/// The operation of a rank without data, with its own buffers: it contributes elements that do not
/// change the result, and discards what it receives. Precondition: there is no obstacle, and the
/// terms are of a single operation; for device memory `memory` is not null. Errors:
/// KoloError(kResources).
std::shared_ptr<Operation> make_stand_in(const OperationTerms& terms, int world_size,
                                         StandInMemory* memory = nullptr);

}  // namespace kolo
