#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/coordinator/coordinator.h"
#include "tests/support/in_process_transport.h"

namespace kolo::test {

inline constexpr TransportLimits kLimits{
    .arena_bytes = 4096, .flags_per_peer = 16, .counters = 2 * kMaxBuckets};
inline const CoordinatorOptions kOptions{.mismatch_after = std::chrono::seconds(1),
                                         .peer_timeout = std::chrono::seconds(10),
                                         .stall_after = std::chrono::seconds(300)};
inline constexpr Duration kTick = std::chrono::milliseconds(50);

struct Wait final : Waitable {
  int waiters() const override { return count; }
  int count = 0;
};

/// The coordinators of all ranks of a job, in one thread. Only the test advances time.
class CoordinatorJob {
 public:
  explicit CoordinatorJob(const std::vector<int>& nodes,
                          const CoordinatorOptions& options = kOptions)
      : hub_(ProcessGrid::with_node_sizes(nodes), kLimits) {
    for (int rank = 0; rank < size(); ++rank) {
      threads_.emplace_back(0);
      transports_.push_back(hub_.transport(rank));
      coordinators_.push_back(std::make_unique<Coordinator>(*transports_.back(), hub_.grid(), clock,
                                                            options, &threads_.back()));
    }
  }

  int size() const { return hub_.grid().world_size(); }
  Coordinator& coordinator(int rank) { return *coordinators_[static_cast<std::size_t>(rank)]; }
  Transport& transport(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  /// Returns the number of the program's threads that use the runtime of `rank`.
  std::atomic<int>& threads(int rank) { return threads_[static_cast<std::size_t>(rank)]; }

  void poll(int rank, const std::vector<int>& awaited = {}) {
    transport(rank).poll();
    coordinator(rank).poll();
    if (coordinator(rank).is_check_due(!awaited.empty())) coordinator(rank).check_peers(awaited);
  }

  /// Polls each rank `rounds` times.
  void poll_all(int rounds = 20) {
    for (int i = 0; i < rounds * size(); ++i) poll(i % size());
  }

  /// Advances the clock by `time` in ticks. Before each tick, calls `poll_rank` twice for each
  /// rank, because a frame takes much less time than a tick.
  template <typename PollRank>
  void play(Duration time, const PollRank& poll_rank) {
    for (const TimePoint end = clock.now() + time; clock.now() < end;) {
      for (int i = 0; i < 2 * size(); ++i) poll_rank(i % size());
      clock.advance(kTick);
    }
  }
  /// Polls all ranks except `idle` for `time`. If `idle` is -1, polls all ranks.
  void play_without(int idle, Duration time) {
    play(time, [&](int rank) {
      if (rank != idle) poll(rank);
    });
  }
  /// Calls `play_without`, and returns the lines that it logs.
  std::string log_without(int idle, Duration time) {
    testing::internal::CaptureStderr();
    play_without(idle, time);
    return testing::internal::GetCapturedStderr();
  }

  ManualClock clock;

 private:
  InProcessHub hub_;
  std::deque<std::atomic<int>> threads_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Coordinator>> coordinators_;
};

}  // namespace kolo::test
