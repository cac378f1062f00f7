#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/mutex.h"

namespace kolo::test {

/// Thrown in a rank that waits when another rank has failed already: it ends the wait quietly.
struct RankReleased {};

/// What the body of one rank sees of the run it is part of.
class RankRun {
 public:
  RankRun(int rank, int world_size, const std::atomic<bool>& failed)
      : rank_(rank), world_size_(world_size), failed_(failed) {}

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Calls `poll` until `done` holds. Ends early, with an exception, when another rank has failed
  /// or when half a minute has passed, so that no test hangs.
  template <typename Poll, typename Done>
  void poll_until(Poll&& poll, Done&& done) const {
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    while (!done()) {
      if (failed_.load(std::memory_order_relaxed)) throw RankReleased{};
      if (std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("what was waited for did not happen");
      }
      if (!poll()) std::this_thread::yield();
    }
  }

 private:
  static constexpr std::chrono::seconds kLongestWait{30};

  const int rank_;
  const int world_size_;
  const std::atomic<bool>& failed_;
};

/// Runs `body` as `world_size` ranks, each on a thread of its own, and joins them.
/// Errors: std::runtime_error that names the first rank that threw and says why; the other ranks
///         are released from their waits.
inline void run_ranks(int world_size, const std::function<void(const RankRun&)>& body) {
  std::atomic<bool> failed{false};
  Mutex mutex;
  std::string first_failure;
  const auto report = [&](int rank, const std::string& what) {
    const MutexLock lock(mutex);
    if (first_failure.empty()) first_failure = "rank " + std::to_string(rank) + ": " + what;
    failed = true;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(RankRun(rank, world_size, failed));
      } catch (const RankReleased&) {
        // Another rank failed and is reported.
      } catch (const std::exception& error) {
        report(rank, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_failure.empty()) throw std::runtime_error(first_failure);
}

}  // namespace kolo::test
