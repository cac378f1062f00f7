#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/fault_group.h"

namespace kolo::test {

/// Counts the calls of the first rank of a job to the collectives of all ranks. It outlives the
/// job.
class CallCounter {
 public:
  /// For `JobDevices::wrap`.
  std::unique_ptr<LocalGroup> wrap(int rank, const std::string& members,
                                   std::unique_ptr<LocalGroup> group) {
    if (rank != 0 || members != "world") return group;
    auto counted = std::make_unique<FaultGroup>(std::move(group), FaultPlan{});
    world_ = counted.get();
    return counted;
  }

  /// Since the last time.
  std::uint64_t calls() {
    const std::uint64_t now = world_->calls();
    return now - std::exchange(seen_, now);
  }

 private:
  FaultGroup* world_ = nullptr;
  std::uint64_t seen_ = 0;
};

}  // namespace kolo::test
