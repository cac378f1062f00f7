#pragma once

#include <memory>

#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// A gradient set of one gradient, as in training. Out of place, the contribution is copied to the
/// place of the sum, which is part of the time. What gradients do not take, and other collectives,
/// are calls of their own. Cases in device memory are on the runtime's device.
/// `runtime` outlives the system.
std::unique_ptr<CollectiveSystem> make_kolo_system(Runtime& runtime);

}  // namespace kolo::bench
