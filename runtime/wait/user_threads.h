#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>

namespace kolo {

/// Counts the threads of the program that have called one runtime and still run. When all of them
/// wait for Kolo, this rank can submit nothing more.
///
/// Threads: any.
class UserThreads {
 public:
  /// Counts the calling thread, unless it is exempt, until it ends. Cost: one comparison if this
  /// runtime is the last one that the thread used.
  void enter() const {
    if (last_used_ != count_.get()) enter_another();
  }

  /// Throws UsageError in a forked process, which has no threads of the runtime and is not a rank.
  /// Cost: one comparison.
  void check_process() const {
    if (!is_of_this_process()) refuse_process();
  }
  bool is_of_this_process() const {
    return process_ == this_process_.load(std::memory_order_relaxed);
  }

  /// Stops counting the calling thread until it enters again.
  void leave() const;

  /// Never counts the calling thread: it submits nothing that other ranks wait for. The thread must
  /// use no other runtime.
  void exempt() const;

  /// Returns the counter for the coordinator, which lives as long as this object.
  const std::atomic<int>* count() const { return count_.get(); }

 private:
  void enter_another() const;
  [[noreturn]] void refuse_process() const;
  static pid_t look_at_process();

  /// Counter of the last runtime that the calling thread used; the thread keeps it alive.
  static constinit thread_local const std::atomic<int>* last_used_;
  static std::atomic<pid_t> this_process_;  // cached, and set again after a fork
  pid_t process_ = look_at_process();
  std::shared_ptr<std::atomic<int>> count_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace kolo
