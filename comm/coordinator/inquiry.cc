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

std::optional<JointReport> Inquiry::take_complete() {
  if (!is_open() || !silent_.empty()) return std::nullopt;
  return combine(std::exchange(reports_, {}));
}

}  // namespace kolo
