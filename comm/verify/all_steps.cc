#include "comm/verify/all_steps.h"

#include <algorithm>

#include <fmt/format.h>

namespace kolo {

AllSteps::AllSteps(std::span<const Schedule> schedules) : schedules_(schedules), first_{0} {
  for (const Schedule& schedule : schedules_) {
    first_.push_back(first_.back() + schedule.steps.size());
  }
}

std::size_t AllSteps::rank_of(Node node) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(first_, node) - first_.begin() - 1);
}

const Step& AllSteps::operator[](Node node) const {
  const std::size_t rank = rank_of(node);
  return schedules_[rank].steps[node - first_[rank]];
}

std::string AllSteps::text(Node node) const {
  const std::size_t rank = rank_of(node);
  return fmt::format("rank {} step {} ({})", rank, node - first_[rank],
                     to_string((*this)[node].kind));
}

}  // namespace kolo
