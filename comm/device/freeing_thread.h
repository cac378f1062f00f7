#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace kolo {

/// Frees memory on a thread of its own. Freeing memory of a device may wait for all of its work,
/// also for a collective of the program whose peer waits for this rank; the thread that drives an
/// engine must not. The thread lives while there is memory to free.
///
/// Threads: any. The destructor waits until all is freed, but at most `kLongestWait`.
class FreeingThread {
 public:
  static constexpr std::chrono::seconds kLongestWait{5};

  FreeingThread();
  ~FreeingThread();
  FreeingThread(const FreeingThread&) = delete;
  FreeingThread& operator=(const FreeingThread&) = delete;

  /// Calls `free` later, in the order of these calls. `free` must not throw.
  void run(std::function<void()> free) noexcept;

  /// Waits like the destructor. Returns whether there was memory to free, and all of it is free.
  bool finish();

 private:
  struct Queue;
  const std::shared_ptr<Queue> queue_;  ///< Shared with the thread, which may be left behind.
};

}  // namespace kolo
