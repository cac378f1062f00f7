#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/base/mutex.h"
#include "runtime/message/message_call.h"

namespace kolo {

/// Messages that are over, kept so that calls allocate little. Threads: any.
class MessagePool {
 public:
  std::shared_ptr<MessageCall> take() KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (unused_.empty()) return std::make_shared<MessageCall>();
    std::shared_ptr<MessageCall> call = std::move(unused_.back());
    unused_.pop_back();
    return call;
  }

  /// Before: it is done, and nobody else refers to it but to drop it.
  void give_back(std::shared_ptr<MessageCall> call) KOLO_EXCLUDES(mutex_) {
    call->reset();
    call->ready = nullptr;
    const MutexLock lock(mutex_);
    if (unused_.size() < kMost) unused_.push_back(std::move(call));
  }

 private:
  /// As many as threads that are likely to call at the same time.
  static constexpr std::size_t kMost = 16;

  Mutex mutex_;
  std::vector<std::shared_ptr<MessageCall>> unused_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo
