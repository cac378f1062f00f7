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

/// The buffers of an operation, which may differ at each use, or a bounce buffer of them in pinned
/// memory. Threads: the engine's.
class BufferBinding {
 public:
  BufferBinding() = default;
  /// The buffers hold, part by part, what `rank` contributes and receives; if the spec is grouped,
  /// the buffers of each tensor do. `spec` is the operation's, merged or not.
  BufferBinding(const Operation& operation, const CollectiveSpec& spec, int rank);

  /// For buffers in device memory with a bucket in host memory: moves the segments to a bounce
  /// buffer. Errors: KoloError(kResources).
  void bounce_in(CopyStreams& streams);
  /// Null without a bounce buffer.
  const std::shared_ptr<BounceBuffer>& bounce_buffer() const { return bounce_buffer_; }

  /// For the packer: offsets in the bucket, and addresses in the buffers of the first use.
  const std::vector<Segment>& segments() const { return segments_; }
  /// Sets the packer, which was made for these segments.
  void set_packer(std::shared_ptr<Rebindable> packer) { packer_ = std::move(packer); }
  /// Sets the factor of the packer: the scale of each use, times `factor`.
  using SetScale = std::function<void(double)>;
  void set_scaling(SetScale scaling, double factor) {
    set_scale_ = std::move(scaling);
    factor_ = factor;
  }

  /// Binds the buffers of a use, before any peer begins it. Starts to fill the bounce buffer, or
  /// copies contributions that results would overwrite.
  void bind(const Operation& operation);

 private:
  /// Offsets in bytes in the result and in the contribution of a tensor.
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
  std::vector<BounceBuffer::Copy> down_, up_;  // of the current use
};

/// Schedule and buffers of the bucket for one named operation.
struct PlannedOperation {
  BucketPlan bucket;
  BufferBinding tensors;
};

/// Whether the operation's buffers at this rank begin in memory that peers can access.
bool is_in_arena(const Operation& operation, std::span<const std::byte> shared);

/// Plans an agreed operation, except kClose. `in_arenas`: see BucketLayout. Errors: as
/// `plan_gradients`.
PlannedOperation plan_operation(const Operation& operation, bool in_arenas,
                                const PlanContext& context);

}  // namespace kolo
