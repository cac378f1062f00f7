#include "comm/coordinator/inquiry.h"

#include <utility>

namespace kolo {

void Inquiry::begin(std::uint64_t number, JointReport own) {
  number_ = number;
  reports_.clear();
  reports_.push_back(std::move(own));
  silent_ = {tree_.children.begin(), tree_.children.end()};
}

void Inquiry::report(int child, std::uint64_t number, JointReport report) {
  if (!is_open() || number != number_ || silent_.erase(child) == 0) return;
  reports_.push_back(std::move(report));
}

void Inquiry::give_up(MuteRank child) {
  if (silent_.erase(child.rank) == 0) return;
  reports_.push_back({.mute = {std::move(child)}});
}

std::optional<JointReport> Inquiry::take_complete() {
  if (!is_open() || !silent_.empty()) return std::nullopt;
  return combine(std::exchange(reports_, {}));
}

}  // namespace kolo
