#include "runtime/wait/user_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

/// The counters of the runtimes that one thread has used.
class Runtimes {
 public:
  ~Runtimes() {
    for (const auto& count : counts_) count->fetch_sub(1, std::memory_order_acq_rel);
    has_ended_ = true;
  }

  /// Returns null once the thread's variables are destroyed: destructors of static variables, which
  /// run later, may still use runtimes.
  static Runtimes* of_thread() {
    if (has_ended_) return nullptr;
    thread_local Runtimes runtimes;
    return &runtimes;
  }

  void enter(const std::shared_ptr<std::atomic<int>>& count) {
    if (std::find(counts_.begin(), counts_.end(), count) != counts_.end()) return;
    std::erase_if(counts_, [](const auto& other) { return other.use_count() == 1; });
    count->fetch_add(1, std::memory_order_acq_rel);
    counts_.push_back(count);
  }

  void leave(const std::shared_ptr<std::atomic<int>>& count) {
    if (std::erase(counts_, count) > 0) count->fetch_sub(1, std::memory_order_acq_rel);
  }

  /// Keeps the counter of the runtime that the thread is exempt from.
  void keep(const std::shared_ptr<std::atomic<int>>& count) { exempt_ = count; }

 private:
  static constinit thread_local bool has_ended_;
  // Shared, because a thread and a runtime may end in either order.
  std::vector<std::shared_ptr<std::atomic<int>>> counts_;
  std::shared_ptr<std::atomic<int>> exempt_;
};

constinit thread_local bool Runtimes::has_ended_ = false;

}  // namespace

constinit thread_local const std::atomic<int>* UserThreads::last_used_ = nullptr;
constinit std::atomic<pid_t> UserThreads::this_process_ = 0;

/// Returns this process's id. It may register `look` more than once, which does no harm.
pid_t UserThreads::look_at_process() {
  const auto look = [] { this_process_.store(::getpid(), std::memory_order_relaxed); };
  if (this_process_.load(std::memory_order_relaxed) == 0) ::pthread_atfork(nullptr, nullptr, look);
  look();
  return this_process_.load(std::memory_order_relaxed);
}

void UserThreads::enter_another() const {
  if (Runtimes* const runtimes = Runtimes::of_thread()) runtimes->enter(count_);
  last_used_ = count_.get();
}

void UserThreads::refuse_process() const {
  throw UsageError(fmt::format(
      "process {} was forked from process {}, which has this runtime, and has no part in "
      "the job; call Kolo there, or start a fresh program",
      ::getpid(), process_));
}

void UserThreads::leave() const {
  if (Runtimes* const runtimes = Runtimes::of_thread()) runtimes->leave(count_);
  if (last_used_ == count_.get()) last_used_ = nullptr;
}

void UserThreads::exempt() const {
  leave();
  if (Runtimes* const runtimes = Runtimes::of_thread()) runtimes->keep(count_);
  last_used_ = count_.get();
}

}  // namespace kolo
