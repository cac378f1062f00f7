#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "comm/base/spin_lock.h"

namespace kolo {

/// Passes items from any thread to one consumer, in order per producer. The consumer takes all
/// items by a swap, so both sides reuse their memory and hold the lock only for a push or a swap.
/// Checking an empty queue takes no lock.
template <typename Item>
class ReadyQueue {
 public:
  /// Adds `item`. If the queue is closed, returns false and keeps `item` unchanged. Threads: any.
  [[nodiscard]] bool push(Item& item) {
    const SpinGuard lock(lock_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    has_items_.store(true, std::memory_order_release);
    return true;
  }

  /// Makes all later pushes fail. A thread whose push fails sees everything that the consumer wrote
  /// before. Threads: the consumer.
  void close() {
    const SpinGuard lock(lock_);
    closed_ = true;
  }

  /// Replaces the content of `into` by all items pushed so far. Threads: the consumer.
  void drain(std::vector<Item>& into) {
    into.clear();
    if (empty()) return;
    const SpinGuard lock(lock_);
    std::swap(items_, into);
    has_items_.store(false, std::memory_order_relaxed);
  }

  /// Returns true if empty; may miss a push that is not ordered before the call. Threads: any.
  bool empty() const { return !has_items_.load(std::memory_order_acquire); }

 private:
  SpinLock lock_;
  std::vector<Item> items_ KOLO_GUARDED_BY(lock_);
  std::atomic<bool> has_items_{false};  // written under the lock
  bool closed_ KOLO_GUARDED_BY(lock_) = false;
};

}  // namespace kolo
