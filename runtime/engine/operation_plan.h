#pragma once

#include <memory>

#include "fusion/rebindable.h"
#include "runtime/engine/operation.h"
#include "runtime/engine/plan_context.h"

namespace kolo {

/// All that a bucket for one named operation needs.
struct PlannedOperation {
  BucketPlan bucket;
  std::shared_ptr<Rebindable> packer;  ///< Also in the binding; takes each use's buffer.
};

/// Plans an agreed all-reduce, broadcast or barrier. Errors: as `plan_gradients`.
PlannedOperation plan_operation(const Operation& operation, const PlanContext& context);

}  // namespace kolo
