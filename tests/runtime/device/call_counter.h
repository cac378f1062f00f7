#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/fault_group.h"

namespace kolo::test {

/// Counts the calls of the first rank of a job to the collectives of a group, that of all ranks
/// unless it is told. It outlives the job.
class CallCounter {
 public:
  explicit CallCounter(std::string members = "world") : members_(std::move(members)) {}

  /// For `JobDevices::wrap`.
  std::unique_ptr<LocalGroup> wrap(int rank, const std::string& members,
                                   std::unique_ptr<LocalGroup> group) {
    if (rank != 0 || members != members_) return group;
    auto counted = std::make_unique<FaultGroup>(std::move(group), FaultPlan{});
    group_ = counted.get();
    return counted;
  }

  /// Since the last time.
  std::uint64_t calls() {
    const std::uint64_t now = group_->calls();
    return now - std::exchange(seen_, now);
  }

 private:
  const std::string members_;
  FaultGroup* group_ = nullptr;
  std::uint64_t seen_ = 0;
};

}  // namespace kolo::test
