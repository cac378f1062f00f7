#pragma once

#include <memory>

#include "benchmarks/all_reduce/all_reduce_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// What this machine or network allows for an all-reduce, measured in the same turns: `MemoryLimit`
/// on one node, `WireLimit` between nodes. The same for every home of the memory. Collective.
/// Errors: prepare throws KoloError(kConfig) for device memory; those of `WireLimit`.
std::unique_ptr<AllReduceSystem> make_limit_system(Runtime& runtime);

}  // namespace kolo::bench
