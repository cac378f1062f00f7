#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tests/support/device/stream_task.h"

namespace kolo {

/// First in, first out. Its memory grows to the largest number of tasks held and is reused.
class TaskQueue {
 public:
  bool empty() const { return count_ == 0; }
  StreamTask& front() { return *slots_[first_]; }

  void push(StreamTask task) {
    if (count_ == slots_.size()) grow();
    slots_[(first_ + count_) % slots_.size()].emplace(std::move(task));
    ++count_;
  }

  void pop() {
    slots_[first_].reset();
    first_ = (first_ + 1) % slots_.size();
    --count_;
  }

 private:
  void grow() {
    std::vector<std::optional<StreamTask>> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<std::optional<StreamTask>> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace kolo
