#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>

namespace kolo {

/// Counts the threads of the program that have called one runtime and still run. When all of them
/// wait, this rank submits nothing more by itself.
///
/// Threads: any.
class UserThreads {
 public:
  /// The calling thread uses the runtime, until it ends. Cost: one comparison if this runtime is
  /// the last one that it used.
  void enter() const {
    if (last_used_ != count_.get()) enter_another();
  }

  /// Errors: UsageError in a process that was forked from that of the runtime, which has none of
  /// its threads and no part in the job. Cost: one comparison.
  void check_process() const {
    if (!is_of_this_process()) refuse_process();
  }
  bool is_of_this_process() const {
    return process_ == this_process_.load(std::memory_order_relaxed);
  }

  /// The calling thread does not use the runtime until it enters again.
  void leave() const;

  /// The counter for the coordinator; lives as long as this object.
  const std::atomic<int>* count() const { return count_.get(); }

 private:
  void enter_another() const;
  [[noreturn]] void refuse_process() const;
  static pid_t look_at_process();

  /// By the calling thread, which keeps the counter alive.
  static constinit thread_local const std::atomic<int>* last_used_;
  static std::atomic<pid_t> this_process_;  // without a system call: set again after a fork
  pid_t process_ = look_at_process();
  std::shared_ptr<std::atomic<int>> count_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace kolo
