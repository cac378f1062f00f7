#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "comm/base/spin_lock.h"

namespace kolo {

/// Hands items from any thread to one consumer, in order per producer. The consumer swaps the whole
/// backlog out, so both sides reuse their memory and hold the lock only for a push or a swap.
/// Checking an empty queue takes no lock.
template <typename Item>
class ReadyQueue {
 public:
  /// Returns false, and leaves `item` unchanged, once the queue is closed. Threads: any.
  [[nodiscard]] bool push(Item& item) {
    const SpinGuard lock(lock_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    has_items_.store(true, std::memory_order_release);
    return true;
  }

  /// Refuses every later push. A refused thread sees everything that the consumer wrote before.
  /// Threads: the consumer.
  void close() {
    const SpinGuard lock(lock_);
    closed_ = true;
  }

  /// Replaces `into` by everything pushed so far. Threads: the consumer.
  void drain(std::vector<Item>& into) {
    into.clear();
    if (empty()) return;
    const SpinGuard lock(lock_);
    std::swap(items_, into);
    has_items_.store(false, std::memory_order_relaxed);
  }

  /// May miss a push that is not ordered before the call. Threads: any.
  bool empty() const { return !has_items_.load(std::memory_order_acquire); }

 private:
  SpinLock lock_;
  std::vector<Item> items_ KOLO_GUARDED_BY(lock_);
  std::atomic<bool> has_items_{false};  // changes under the lock
  bool closed_ KOLO_GUARDED_BY(lock_) = false;
};

}  // namespace kolo
