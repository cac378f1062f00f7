#include "runtime/wait/user_threads.h"

#include <algorithm>
#include <vector>

namespace kolo {
namespace {

/// The runtimes that one thread has used, the last one in front.
class Runtimes {
 public:
  ~Runtimes() {
    for (const auto& count : counts_) count->fetch_sub(1, std::memory_order_acq_rel);
  }

  void enter(const std::shared_ptr<std::atomic<int>>& count) {
    if (!counts_.empty() && counts_.front() == count) return;
    const auto known = std::find(counts_.begin(), counts_.end(), count);
    if (known != counts_.end()) {
      std::iter_swap(counts_.begin(), known);
      return;
    }
    std::erase_if(counts_, [](const auto& other) { return other.use_count() == 1; });
    count->fetch_add(1, std::memory_order_acq_rel);
    counts_.insert(counts_.begin(), count);
  }

 private:
  // Shared because a thread may outlive a runtime, and a runtime its threads.
  std::vector<std::shared_ptr<std::atomic<int>>> counts_;
};

}  // namespace

void UserThreads::enter() const {
  thread_local Runtimes runtimes;
  runtimes.enter(count_);
}

}  // namespace kolo
