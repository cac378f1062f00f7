#include "comm/coordinator/failure_detector.h"

#include <algorithm>
#include <utility>

namespace kolo {

/// This rank itself may have been stopped, which proves nothing about its peers. Therefore one
/// check adds at most a quarter of the limit.
std::optional<int> FailureDetector::check(TimePoint now) {
  const Duration elapsed = last_check_ ? now - *last_check_ : Duration(0);
  last_check_ = now;
  for (auto& [peer, silence] : silences_) {
    silence.lasts += std::min(elapsed, peer_timeout_ / 4);
    if (silence.lasts >= peer_timeout_) return peer;
  }
  return std::nullopt;
}

Duration FailureDetector::silence(int peer) const {
  const auto found = silences_.find(peer);
  return found == silences_.end() ? Duration(0) : found->second.lasts;
}

std::vector<int> FailureDetector::take_silent(Duration limit) {
  std::vector<int> silent;
  for (auto& [peer, silence] : silences_) {
    if (silence.lasts < limit || std::exchange(silence.is_taken, true)) continue;
    silent.push_back(peer);
  }
  return silent;
}

std::vector<int> FailureDetector::take_overdue(std::set<int> awaited) {
  const std::set<int> previous = std::exchange(watched_, std::move(awaited));
  std::vector<int> overdue;
  for (const int peer : watched_) {
    if (!previous.contains(peer)) continue;
    if (!silences_.contains(peer)) overdue.push_back(peer);
    expect(peer);
  }
  return overdue;
}

void FailureDetector::rest() {
  last_check_.reset();
  if (!silences_.empty()) silences_.clear();
  if (!watched_.empty()) watched_.clear();
}

}  // namespace kolo
