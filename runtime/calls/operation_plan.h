#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "fusion/pack_kernels.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/calls/operation.h"

namespace kolo {

/// Binds a bucket to the buffers of each use of an operation, directly or through a bounce buffer
/// in pinned memory. Threads: the engine's.
class BufferBinding {
 public:
  BufferBinding() = default;
  /// `spec` is the spec of `operation`, merged or with separate parts for each tensor. The buffers
  /// of a tensor hold, in order, the parts of it that `rank` contributes and receives.
  BufferBinding(const Operation& operation, const CollectiveSpec& spec, int rank);

  /// Moves the segments to a bounce buffer, for buffers in device memory with a bucket in host
  /// memory. Errors: KoloError(kResources).
  void bounce_in(CopyStreams& streams);
  /// Returns the bounce buffer; null if there is none.
  const std::shared_ptr<BounceBuffer>& bounce_buffer() const { return bounce_buffer_; }

  /// Returns the segments for the packer, with the addresses of the first use.
  const std::vector<Segment>& segments() const { return segments_; }
  /// Sets the packer, which must have been made for `segments()`.
  void set_packer(std::shared_ptr<Rebindable> packer) { packer_ = std::move(packer); }
  /// Sets the function by which `bind` sets the packer's factor: the use's scale times `factor`.
  using SetScale = std::function<void(double)>;
  void set_scaling(SetScale scaling, double factor) {
    set_scale_ = std::move(scaling);
    factor_ = factor;
  }

  /// Binds the buffers of a use; called before this rank's arrival. Starts to fill the bounce
  /// buffer, or copies contributions that results would overwrite.
  void bind(const Operation& operation);

 private:
  /// Position of a segment in the buffers of its tensor. Offsets are bytes.
  struct Place {
    std::size_t tensor = 0;
    std::optional<std::size_t> result = {}, input = {};
    std::size_t bytes = 0;
    bool is_read = false, is_written = false;  // whether this rank contributes and receives it
    std::optional<std::size_t> copy = {};      // the contribution's index in `copies_`
    std::size_t result_in_bounce = 0, input_in_bounce = 0;
  };

  void append_place(const Operation& operation, std::size_t tensor,
                    const CollectiveSpec::Part& part, int rank, std::vector<Place>& ends);
  /// Appends a run, or extends the last one if the two are contiguous.
  static void append(std::vector<BounceBuffer::Copy>& runs, const BounceBuffer::Copy& run);
  void begin_bounce(const Operation& operation);

  std::vector<Place> places_;  // by segment
  std::vector<Segment> segments_;
  std::shared_ptr<Rebindable> packer_;
  SetScale set_scale_;  // null if contributions are not scaled
  double factor_ = 1;
  std::size_t copied_bytes_ = 0;
  AlignedMemory copies_;  // null until it is needed
  std::shared_ptr<BounceBuffer> bounce_buffer_;
  std::vector<BounceBuffer::Copy> down_, up_;  // copies of the current use
};

/// Schedule and buffers of the bucket for one named operation.
struct PlannedOperation {
  BucketPlan bucket;
  BufferBinding tensors;
};

/// Returns whether the operation's buffers at this rank begin in memory that peers can access.
bool is_in_arena(const Operation& operation, std::span<const std::byte> shared);

/// Plans an operation of any kind but kClose, on which all ranks have agreed. See `BucketLayout`
/// for `in_arenas`. Errors: as `plan_gradients`.
PlannedOperation plan_operation(const Operation& operation, bool in_arenas,
                                const PlanContext& context);

}  // namespace kolo
