#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"

namespace kolo {

/// The last action of a rank, for stall reports.
struct ActivitySnapshot {
  std::string text = {};  ///< "completed 'x': all_reduce ...", or empty before the first action.
  std::chrono::milliseconds age{0};

  friend bool operator==(const ActivitySnapshot&, const ActivitySnapshot&) = default;
};

/// Records the last action of this rank. An action gets its time at the next `look`, after it
/// happened, so its true age is at least the reported one.
///
/// Threads: one; any for `copy_text`.
class LastActivity {
 public:
  /// Records the completion of a bucket. `text` must stay valid and unchanged until `keep`.
  void completed(const std::string& text) {
    text_.store(&text, std::memory_order_release);
    ++acts_;
  }
  /// Records an action other than a completed bucket. Locks a mutex.
  void did(std::string what) KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    kept_ = std::move(what);
    text_.store(nullptr, std::memory_order_relaxed);
    ++acts_;
  }
  /// Copies the text text text of the last completed bucket, before the caller changes it.
  void keep() KOLO_EXCLUDES(mutex_) {
    if (text_.load(std::memory_order_relaxed) == nullptr) return;
    const MutexLock lock(mutex_);  // Waits for a thread that copies the text of a bucket.
    kept_ = text();
    text_.store(nullptr, std::memory_order_relaxed);
  }
  /// Gives actions since the last `look` the time `now`.
  void look(TimePoint now) {
    if (std::exchange(seen_, acts_) != acts_) at_ = now;
  }

  /// Returns the last action and its age. Before: `look` was called, with `now` or an earlier time.
  ActivitySnapshot at(TimePoint now) const KOLO_EXCLUDES(mutex_) {
    if (acts_ == 0) return {};
    const MutexLock lock(mutex_);
    return {.text = text(),
            .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - at_)};
  }

  /// Copies as much of the text as fits into `to`, without allocating. Returns the number of bytes.
  std::size_t copy_text(std::span<char> to) const KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::size_t bytes = 0;
    for_each_part([&](std::string_view part) {
      const std::size_t fitting = std::min(part.size(), to.size() - bytes);
      std::copy_n(part.data(), fitting, to.data() + bytes);
      bytes += fitting;
    });
    return bytes;
  }

 private:
  static constexpr std::size_t kMostBytes = 64;

  template <typename Take>
  void for_each_part(const Take& take) const KOLO_REQUIRES(mutex_) {
    const std::string* const completed = text_.load(std::memory_order_acquire);
    if (completed == nullptr) return take(kept_);
    take("completed ");
    take(std::string_view(*completed).substr(0, kMostBytes));
    if (completed->size() > kMostBytes) take("...");
  }

  std::string text() const KOLO_REQUIRES(mutex_) {
    std::string text;
    for_each_part([&](std::string_view part) { text += part; });
    return text;
  }

  mutable Mutex mutex_;                             // held while texts are read or changed
  std::atomic<const std::string*> text_ = nullptr;  // of the last completed bucket
  std::string kept_ KOLO_GUARDED_BY(mutex_);
  std::uint64_t acts_ = 0, seen_ = 0;
  TimePoint at_{};
};

}  // namespace kolo
