#pragma once

#include <memory>

#include "benchmarks/all_reduce/all_reduce_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Gloo over TCP on all ranks, by the best of its algorithms; those that work in place only get the
/// contribution copied first, within the time. Ranks find each other through Kolo. Collective.
/// Errors: prepare throws KoloError(kConfig) for 16-bit floats and averages, which are not
/// compared.
std::unique_ptr<AllReduceSystem> make_gloo_system(Runtime& runtime);

}  // namespace kolo::bench
