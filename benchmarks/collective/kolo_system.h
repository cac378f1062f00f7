#pragma once

#include <memory>

#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// All-reduces run as a gradient set of one gradient, as in training; out of place, the time
/// includes the copy of the contribution to the gradient. Reductions that gradients do not take and
/// other collectives are direct calls. Cases in device memory use the runtime's device. `runtime`
/// outlives the system.
std::unique_ptr<CollectiveSystem> make_kolo_system(Runtime& runtime);

}  // namespace kolo::bench
