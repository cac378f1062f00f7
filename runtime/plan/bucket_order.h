#pragma once

#include <cstddef>
#include <cstdint>

#include "fusion/bucket_planner.h"

namespace kolo {

/// How soon a forward pass needs what is in a bucket; the smaller, the sooner. Gradients are needed
/// in the order of their registration, and what follows the first `gradients` of a set, the
/// weights, with the first. Never 0. Threads: pure; any.
std::uint32_t urgency_of(const PlannedBucket& bucket, std::size_t gradients);

}  // namespace kolo
