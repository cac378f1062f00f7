#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/pack_kernels.h"
#include "fusion/rebindable.h"
#include "fusion/segment_packer.h"
#include "runtime/engine/operation.h"
#include "runtime/engine/plan_context.h"

namespace kolo {

/// The parts of an operation in the caller's buffers, which may be others at each use.
/// Threads: the engine's.
class OperationTensors {
 public:
  OperationTensors() = default;
  /// What `rank` contributes to `goal` and receives of it lies in its buffers part by part; in
  /// those of each tensor, if it is grouped.
  OperationTensors(const Operation& operation, const Goal& goal, int rank);

  /// For the packer: their places in the bucket, and in the buffers of the first use.
  const std::vector<Segment>& segments() const { return segments_; }
  /// `packer` was made of the segments.
  void set_packer(std::shared_ptr<Rebindable> packer) { packer_ = std::move(packer); }
  /// The same packer, if it multiplies contributions by a scale of each use; times `factor`.
  void set_scaling(std::shared_ptr<SegmentPacker> scaling, double factor) {
    scaling_ = std::move(scaling);
    factor_ = factor;
  }

  /// Before each use.
  void bind(const Operation& operation);

 private:
  /// Bytes from the beginning of the result and of the contribution of a tensor.
  struct Place {
    std::size_t tensor = 0;
    std::optional<std::size_t> result = {}, input = {};
  };

  std::vector<Place> places_;  // by segment
  std::vector<Segment> segments_;
  std::shared_ptr<Rebindable> packer_;
  std::shared_ptr<SegmentPacker> scaling_;  // null where contributions are not scaled
  double factor_ = 1;
};

/// All that a bucket for one named operation needs.
struct PlannedOperation {
  BucketPlan bucket;
  OperationTensors tensors;
};

/// Plans an agreed operation that is not the end of the job. Errors: as `plan_gradients`.
PlannedOperation plan_operation(const Operation& operation, const PlanContext& context);

}  // namespace kolo
