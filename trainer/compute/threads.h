#pragma once

namespace kolo::trainer {

/// Sets how many OpenMP threads oneDNN uses in later calls from this thread. One per rank is right
/// while ranks share a machine.
void set_compute_threads(int threads);

}  // namespace kolo::trainer
