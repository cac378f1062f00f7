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

/// The parts of an operation in the caller's buffers, which may be others at each use, or in a
/// mirror of them. Threads: the engine's.
class OperationTensors {
 public:
  OperationTensors() = default;
  /// What `rank` contributes to `goal` and receives of it lies in its buffers part by part; in
  /// those of each tensor, if it is grouped. `goal` is that of the operation, merged or not.
  OperationTensors(const Operation& operation, const Goal& goal, int rank);

  /// The buffers are in device memory, and the bucket is the host's: from now on segments are in a
  /// mirror. Errors: KoloError(kResources).
  void mirror_in(CopyLane& lane);
  /// Null unless there is one.
  const std::shared_ptr<PinnedMirror>& mirror() const { return mirror_; }

  /// For the packer: their places in the bucket, and in the buffers of the first use.
  const std::vector<Segment>& segments() const { return segments_; }
  /// `packer` was made of the segments.
  void set_packer(std::shared_ptr<Rebindable> packer) { packer_ = std::move(packer); }
  /// Multiplies what the packer packs: by the scale of each use, times `factor`.
  using SetScale = std::function<void(double)>;
  void set_scaling(SetScale scaling, double factor) {
    set_scale_ = std::move(scaling);
    factor_ = factor;
  }

  /// Before each use, and before any peer begins it. A mirror begins to fill, or contributions are
  /// copied, where results would replace them.
  void bind(const Operation& operation);

 private:
  /// Bytes from the beginning of the result and of the contribution of a tensor.
  struct Place {
    std::size_t tensor = 0;
    std::optional<std::size_t> result = {}, input = {};
    std::size_t bytes = 0;
    bool is_read = false, is_written = false;  // what this rank contributes, and receives
    std::optional<std::size_t> copy = {};      // the contribution's place in `copies_`
    std::size_t result_in_mirror = 0, input_in_mirror = 0;
  };

  void append_place(const Operation& operation, std::size_t tensor, const Goal::Part& part,
                    int rank, std::vector<Place>& ends);
  /// Appends a run, or lengthens the last one if it goes on there.
  static void append(std::vector<PinnedMirror::Copy>& runs, const PinnedMirror::Copy& run);
  void begin_mirror(const Operation& operation);

  std::vector<Place> places_;  // by segment
  std::vector<Segment> segments_;
  std::shared_ptr<Rebindable> packer_;
  SetScale set_scale_;  // null where contributions are not scaled
  double factor_ = 1;
  std::size_t copied_bytes_ = 0;
  AlignedMemory copies_;  // null before they are needed
  std::shared_ptr<PinnedMirror> mirror_;
  std::vector<PinnedMirror::Copy> down_, up_;  // of a use
};

/// All that a bucket for one named operation needs.
struct PlannedOperation {
  BucketPlan bucket;
  OperationTensors tensors;
};

/// Whether the buffers that the operation has at this rank begin in memory that peers can reach.
bool is_in_arena(const Operation& operation, std::span<const std::byte> shared);

/// Plans an agreed operation that is not the end of the job. `in_arenas`: see BucketLayout. Errors:
/// as `plan_gradients`.
PlannedOperation plan_operation(const Operation& operation, bool in_arenas,
                                const PlanContext& context);

}  // namespace kolo
