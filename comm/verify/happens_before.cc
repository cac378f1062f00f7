#include "comm/verify/happens_before.h"

#include <algorithm>

#include <fmt/format.h>

namespace kolo {

HappensBefore::Node HappensBefore::add_node() {
  before_.emplace_back();
  return before_.size() - 1;
}

// Uses Kahn's algorithm. The nodes that remain are in cycles or depend on cycles.
std::optional<HappensBefore::Node> HappensBefore::sort() {
  order_.clear();
  std::vector<std::vector<Node>> after(before_.size());
  std::vector<std::size_t> missing(before_.size());
  for (Node node = 0; node < before_.size(); ++node) {
    missing[node] = before_[node].size();
    for (Node earlier : before_[node]) after[earlier].push_back(node);
    if (missing[node] == 0) order_.push_back(node);
  }
  for (std::size_t next = 0; next < order_.size(); ++next) {
    for (Node later : after[order_[next]]) {
      if (--missing[later] == 0) order_.push_back(later);
    }
  }
  if (order_.size() == before_.size()) return std::nullopt;
  Node node = 0;
  while (missing[node] == 0) ++node;
  return node;
}

void HappensBefore::close() {
  words_ = (before_.size() + 63) / 64;
  ancestors_.assign(before_.size() * words_, 0);
  for (Node node : order_) {
    std::uint64_t* mine = &ancestors_[node * words_];
    for (Node earlier : before_[node]) {
      const std::uint64_t* theirs = &ancestors_[earlier * words_];
      for (std::size_t word = 0; word < words_; ++word) mine[word] |= theirs[word];
      mine[earlier / 64] |= std::uint64_t{1} << (earlier % 64);
    }
  }
}

bool HappensBefore::precedes(Node earlier, Node later) const {
  return (ancestors_[later * words_ + earlier / 64] >> (earlier % 64) & 1) != 0;
}

bool HappensBefore::any_precedes(Node first, Node last, Node later) const {
  const std::uint64_t* row = &ancestors_[later * words_];
  for (Node node = first; node < last;) {
    const Node end = std::min(last, (node / 64 + 1) * 64);
    const std::uint64_t from_here = row[node / 64] >> (node % 64);
    const std::uint64_t mask =
        end - node == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (end - node)) - 1;
    if ((from_here & mask) != 0) return true;
    node = end;
  }
  return false;
}

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
