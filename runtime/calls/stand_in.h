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
  /// Memory of one operation; it is reused once the operation drops its pointer.
  class Block {
   public:
    Block(Device& device, std::size_t bytes);

    std::byte* data() const { return memory_.data(); }
    std::size_t bytes() const { return memory_.bytes(); }

    /// Enqueues `fill_identity` of `count` elements on `up`: they do not change a result of `op`.
    void fill(Stream& up, std::size_t count, DType dtype, ReduceOp op);
    /// Returns the event after the fills.
    const Event& filled() const { return *filled_; }

   private:
    DeviceMemory memory_;
    DeviceMemory pattern_;  // pinned: the pattern that `fill` repeats
    std::unique_ptr<Event> filled_;
  };

  /// `copies` must outlive this object.
  explicit StandInMemory(CopyStreams& copies) : copies_(copies) {}

  CopyStreams& copies() { return copies_; }
  /// A block of at least `bytes` that no operation uses. Errors: KoloError(kResources).
  std::shared_ptr<Block> take(std::size_t bytes);

 private:
  CopyStreams& copies_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

/// Description of another rank's operation, from which a joined rank makes its own operation.
struct OperationTerms {
  std::string name;
  NameSpace space = NameSpace::kUser;
  OperationShape shape;
};

/// Terms as bytes for other ranks.
std::vector<std::byte> to_bytes(const OperationTerms& terms);
/// Reads terms from the bytes that `to_bytes` made. Returns nothing if they are malformed.
std::optional<OperationTerms> operation_terms_from(std::span<const std::byte> bytes);

/// Returns why `rank`, which has joined, cannot run such an operation without data; empty if it
/// can.
std::string_view obstacle_to(const OperationShape& shape, int rank);

/// Makes the operation of a rank that has joined. It owns its buffers, contributes elements that do
/// not change the result, and discards the result. Precondition: `obstacle_to` is empty,
/// `terms.shape.rows` is empty, and for device memory `memory` is not null. Errors:
/// KoloError(kResources).
std::shared_ptr<Operation> make_stand_in(const OperationTerms& terms, int world_size,
                                         StandInMemory* memory = nullptr);

}  // namespace kolo
