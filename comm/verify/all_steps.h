#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/verify/happens_before.h"

namespace kolo {

/// The steps of all ranks, numbered from rank 0's first to the last rank's last.
/// Threads: immutable; any.
class AllSteps {
 public:
  using Node = HappensBefore::Node;

  /// `schedules[r]` is rank r's; they outlive this.
  explicit AllSteps(std::span<const Schedule> schedules);

  std::size_t size() const { return first_.back(); }
  /// The first step of `rank`; of the number of ranks: `size()`.
  Node first(std::size_t rank) const { return first_[rank]; }
  std::size_t rank_of(Node node) const;
  const Step& operator[](Node node) const;
  std::span<const Schedule> schedules() const { return schedules_; }

  /// "rank 1 step 3 (send)".
  std::string text(Node node) const;

 private:
  std::span<const Schedule> schedules_;
  std::vector<Node> first_;
};

}  // namespace kolo
