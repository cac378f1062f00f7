#include "trainer/data/prefetcher.h"

#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {

Prefetcher::Prefetcher(const Options& options, Prepare prepare)
    : options_(options), prepare_(std::move(prepare)), slots_(options.slots) {
  check(options.threads > 0 && options.slots > 1 && options.round > 0,
        "preparing batches ahead takes a thread and two memories");
  for (std::size_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

Prefetcher::~Prefetcher() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  work_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Batch Prefetcher::take(std::uint64_t number) {
  MutexLock lock(mutex_);
  if (!in_use_ || number != *in_use_ + 1) {
    in_use_.reset();
    slot_changed_.wait(lock, [&]() KOLO_REQUIRES(mutex_) { return working_ == 0; });
    slots_.assign(options_.slots, {});
    next_ = number;
  }
  in_use_ = number;
  work_changed_.notify_all();
  const Slot& slot = slot_of(number);
  slot_changed_.wait(
      lock, [&]() KOLO_REQUIRES(mutex_) { return slot.number == number && slot.is_ready; });
  if (slot.error) std::rethrow_exception(slot.error);
  return slot.batch;
}

void Prefetcher::work() {
  while (const std::optional<std::uint64_t> number = wait_for_work()) {
    try {
      finish(*number, prepare_(*number, *number % options_.slots), nullptr);
    } catch (...) {
      finish(*number, {}, std::current_exception());
    }
  }
}

std::optional<std::uint64_t> Prefetcher::wait_for_work() {
  MutexLock lock(mutex_);
  work_changed_.wait(lock, [&]() KOLO_REQUIRES(mutex_) { return is_stopping_ || may_start(); });
  if (is_stopping_) return std::nullopt;
  slot_of(next_) = {.number = next_};
  ++working_;
  return next_++;
}

void Prefetcher::finish(std::uint64_t number, Batch batch, std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    Slot& slot = slot_of(number);
    slot.batch = std::move(batch);
    slot.error = std::move(error);
    slot.is_ready = true;
    --working_;
  }
  slot_changed_.notify_all();
}

bool Prefetcher::may_start() const {
  return in_use_ && next_ < *in_use_ + options_.slots &&
         next_ / options_.round == *in_use_ / options_.round;
}

}  // namespace kolo::trainer
