#pragma once

#include <atomic>
#include <memory>

namespace kolo {

/// Counts the threads of the program that have called one runtime and still run. When all of them
/// wait, this rank submits nothing more by itself.
///
/// Threads: any.
class UserThreads {
 public:
  /// The calling thread uses the runtime, until it ends. Cost: one comparison when it is known.
  void enter() const;

  /// The counter for the coordinator; lives as long as this object.
  const std::atomic<int>* count() const { return count_.get(); }

 private:
  std::shared_ptr<std::atomic<int>> count_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace kolo
