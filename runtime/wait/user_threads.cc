#include "runtime/wait/user_threads.h"

#include <algorithm>
#include <vector>

namespace kolo {
namespace {

/// The runtimes that one thread has used.
class Runtimes {
 public:
  ~Runtimes() {
    for (const auto& count : counts_) count->fetch_sub(1, std::memory_order_acq_rel);
  }

  static Runtimes& of_thread() {
    thread_local Runtimes runtimes;
    return runtimes;
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

 private:
  // Shared because a thread may outlive a runtime, and a runtime its threads.
  std::vector<std::shared_ptr<std::atomic<int>>> counts_;
};

}  // namespace

constinit thread_local const std::atomic<int>* UserThreads::last_used_ = nullptr;

void UserThreads::enter_another() const {
  Runtimes::of_thread().enter(count_);
  last_used_ = count_.get();
}

void UserThreads::leave() const {
  Runtimes::of_thread().leave(count_);
  if (last_used_ == count_.get()) last_used_ = nullptr;
}

}  // namespace kolo
