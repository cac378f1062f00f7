#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/mutex.h"
#include "runtime/api/kolo.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"

namespace kolo::test {

/// One job of complete runtimes, one per thread, in one process: engine threads, shared memory and
/// user threads are as in a real job, and visible to the sanitizers.
class RuntimeJob {
 public:
  RuntimeJob(int ranks, Options options)
      : options_(std::move(options)),
        endpoints_(make_memory_rendezvous(ranks, std::chrono::seconds(60))) {}

  int size() const { return static_cast<int>(endpoints_.size()); }
  /// The options of this job, to be modified for `join`.
  const Options& options() const { return options_; }
  /// The runtime of a rank, which joins once.
  Runtime join(int rank) { return join(rank, options_); }
  Runtime join(int rank, Options options) {
    return Runtime(std::move(endpoints_[static_cast<std::size_t>(rank)]), std::move(options));
  }
  /// Calls `body` on every rank, with a runtime that ends after the call.
  void run(const std::function<void(Runtime&)>& body) {
    run_ranks(size(), [&](const RankRun& run) {
      Runtime runtime = join(run.rank());
      body(runtime);
    });
  }

 private:
  const Options options_;
  std::vector<std::unique_ptr<Rendezvous>> endpoints_;
};

/// Throws, which ends the run of this rank, unless the condition holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Returns once all ranks have called it, whatever the state of their job.
inline void meet(const RankRun& run, std::atomic<int>& arrived) {
  ++arrived;
  run.poll_until([] { return false; }, [&] { return arrived == run.world_size(); });
}

/// One text per rank, written by its threads.
class Texts {
 public:
  explicit Texts(int ranks) : texts_(static_cast<std::size_t>(ranks)) {}
  void set(int rank, std::string text) {
    const MutexLock lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] = std::move(text);
  }
  const std::vector<std::string>& all() const { return texts_; }

 private:
  Mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace kolo::test
