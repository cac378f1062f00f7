#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fusion/bucket_planner.h"

namespace kolo {

/// Bytes that are not sent yet when the last gradient is ready, if gradients become ready in
/// `order`, at the rate at which buckets are sent one after the other: where the order matters
/// most. A bucket takes `each_bytes` longer than its own bytes.
/// Threads: pure; any.
std::size_t exposed_bytes(const Plan& plan, std::span<const std::size_t> order,
                          std::size_t each_bytes);

/// A plan by the measured order in `options.order`, for gradients that have their places in
/// `options.place_order` and are in the buckets of `current`. Nothing if that would not leave less
/// to send at the end, by an eighth of `fusion_bytes`.
///
/// A bucket is taken to cost `fusion_bytes`²/total bytes beside its own: where that is the cost,
/// `fusion_bytes` is the size for which the last bucket and the costs of all are least together.
///
/// Threads: pure; any. Equal arguments give equal plans. Errors: as `plan_buckets`.
std::optional<Plan> better_plan(std::span<const GradientSpec> gradients,
                                const PlannerOptions& options, const Plan& current);

}  // namespace kolo
