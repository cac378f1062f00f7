#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/mutex.h"

namespace kolo {

/// The threads that sleep until another thread, which drives the engines, has settled what they
/// wait for. If that one is given up, they are woken with the error why.
///
/// Threads: any.
class Bystanders {
 public:
  /// While it lives, the caller may wait for `changed` under `mutex`, which it does not hold when
  /// this begins and ends.
  class Place {
   public:
    Place(Bystanders* all, Mutex& mutex, ConditionVariable& changed)
        : all_(all), mutex_(mutex), changed_(changed) {
      if (all_ != nullptr) all_->enter(*this);
    }
    ~Place() {
      if (all_ != nullptr) all_->leave(*this);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// The driver was given up: `changed` is notified of it.
    bool is_released() const { return all_ != nullptr && all_->is_released(); }

   private:
    friend class Bystanders;

    Bystanders* const all_;
    Mutex& mutex_;
    ConditionVariable& changed_;
  };

  /// Gives the driver up, for good. The first error counts.
  void release(const Error& error) KOLO_EXCLUDES(mutex_);
  bool is_released() const { return is_released_.load(std::memory_order_acquire); }
  /// Throws the error if the driver was given up.
  void throw_if_released() const;

 private:
  void enter(Place& place) KOLO_EXCLUDES(mutex_);
  void leave(Place& place) KOLO_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<Place*> places_ KOLO_GUARDED_BY(mutex_);
  std::optional<Error> error_;  // constant once it is released
  std::atomic<bool> is_released_{false};
};

}  // namespace kolo
