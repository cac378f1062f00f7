#include "comm/coordinator/peer_watch.h"

#include <algorithm>
#include <utility>

namespace kolo {

/// Time in which this rank itself was stopped proves nothing about its peers, so one check adds a
/// quarter of the limit at most.
std::optional<int> PeerWatch::check(TimePoint now) {
  const Duration elapsed = last_check_ ? now - *last_check_ : Duration(0);
  last_check_ = now;
  for (auto& [peer, silence] : silence_) {
    silence += std::min(elapsed, peer_timeout_ / 4);
    if (silence >= peer_timeout_) return peer;
  }
  return std::nullopt;
}

std::vector<int> PeerWatch::take_overdue(std::set<int> awaited) {
  const std::set<int> previous = std::exchange(watched_, std::move(awaited));
  std::vector<int> overdue;
  for (const int peer : watched_) {
    if (!previous.contains(peer)) continue;
    if (!silence_.contains(peer)) overdue.push_back(peer);
    expect(peer);
  }
  return overdue;
}

void PeerWatch::rest() {
  last_check_.reset();
  if (!silence_.empty()) silence_.clear();
  if (!watched_.empty()) watched_.clear();
}

}  // namespace kolo
