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

/// One job of complete runtimes in one process, with one thread per rank. Engine threads, shared
/// memory and user threads are as in a real job, and sanitizers see them.
class RuntimeJob {
 public:
  RuntimeJob(int ranks, Options options)
      : options_(std::move(options)),
        endpoints_(make_memory_rendezvous(ranks, std::chrono::seconds(60))) {}

  int size() const { return static_cast<int>(endpoints_.size()); }
  /// Returns the options of this job. A copy can be changed and passed to `join`.
  const Options& options() const { return options_; }
  /// Starts the runtime of a rank. Called once per rank.
  Runtime join(int rank) { return join(rank, options_); }
  Runtime join(int rank, Options options) {
    return Runtime(std::move(endpoints_[static_cast<std::size_t>(rank)]), std::move(options));
  }
  /// Calls `body` on every rank with a runtime, which ends after the call.
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

/// Throws std::runtime_error if the condition is false, which ends the run of this rank.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Blocks until all ranks have called it. It works in any state of the job.
inline void meet(const RankRun& run, std::atomic<int>& arrived) {
  ++arrived;
  run.poll_until([] { return false; }, [&] { return arrived == run.world_size(); });
}

/// One text for each rank. Threads: any for `set`.
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
