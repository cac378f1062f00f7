#pragma once

namespace kolo::trainer {

/// Sets how many OpenMP threads oneDNN uses in calls from this thread on. One per rank is the
/// right number as long as ranks share a machine.
void set_compute_threads(int threads);

}  // namespace kolo::trainer
