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

/// Thrown in a waiting rank when another rank has failed. It ends the wait without a report.
struct RankReleased {};

/// Gives the function of one rank its rank, and polls for it.
class RankRun {
 public:
  RankRun(int rank, int world_size, const std::atomic<bool>& failed)
      : rank_(rank), world_size_(world_size), failed_(failed) {}

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Calls `poll` until `done` returns true. Throws if another rank has failed or 30 seconds have
  /// passed, so that no test hangs.
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

/// Runs `body` as `world_size` ranks, each on a thread, and joins the threads. Errors:
/// std::runtime_error naming the first rank that threw and its reason; the other ranks stop
/// waiting.
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
        // Another rank has failed and is reported.
      } catch (const std::exception& error) {
        report(rank, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_failure.empty()) throw std::runtime_error(first_failure);
}

}  // namespace kolo::test
