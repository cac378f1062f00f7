#include "runtime/wait/bystanders.h"

namespace kolo {

void Bystanders::enter(Place& place) {
  const MutexLock lock(mutex_);
  places_.push_back(&place);
}

void Bystanders::leave(Place& place) {
  const MutexLock lock(mutex_);
  std::erase(places_, &place);
}

void Bystanders::release(const Error& error) {
  const MutexLock lock(mutex_);
  if (is_released()) return;
  error_ = error;
  is_released_.store(true, std::memory_order_release);
  for (Place* place : places_) {
    // Whoever holds its mutex has not seen the change and is not asleep yet.
    { const MutexLock asleep(place->mutex_); }
    place->changed_.notify_all();
  }
}

void Bystanders::throw_if_released() const {
  if (is_released()) throw KoloError(*error_);
}

}  // namespace kolo
