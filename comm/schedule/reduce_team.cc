#include "comm/schedule/reduce_team.h"

#include <pthread.h>

#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

/// The value of `left_` that stops the helpers.
constexpr std::uint32_t kStop = std::numeric_limits<std::uint32_t>::max();

}  // namespace

ReduceTeam::ReduceTeam(int helpers, const WaitPolicy& policy) : policy_(policy) {
  const auto wanted = static_cast<std::size_t>(helpers);
  helpers_.reserve(wanted);
  try {
    for (std::size_t member = 1; member <= wanted; ++member) {
      helpers_.emplace_back([this, member] { help(member); });
      ::pthread_setname_np(helpers_.back().native_handle(), "kolo-reduce");
    }
  } catch (const std::system_error& e) {
    stop();
    throw KoloError({.code = ErrorCode::kResources,
                     .what = fmt::format("cannot start reduce thread {} of {}: {}; see ulimit -u, "
                                         "or lower the option reduce_threads",
                                         helpers_.size() + 1, helpers, e.what())});
  }
}

ReduceTeam::~ReduceTeam() { stop(); }

void ReduceTeam::stop() {
  left_.store(kStop, std::memory_order_release);
  left_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ReduceTeam::run(std::size_t pieces, const Job& job) {
  if (pieces <= 1 || helpers_.empty()) {
    for (std::size_t piece = 0; piece < pieces; ++piece) job.call(job.context, piece, 0);
    return;
  }
  job_ = job;
  pieces_ = static_cast<std::uint32_t>(pieces);
  unfinished_.store(pieces_, std::memory_order_relaxed);
  left_.store(pieces_, std::memory_order_release);
  left_.notify_all();
  const std::uint32_t done = take_pieces(0);
  unfinished_.fetch_sub(done, std::memory_order_acq_rel);
  Spinner spinner;
  while (const std::uint32_t rest = unfinished_.load(std::memory_order_acquire)) {
    if (!spinner.pass(policy_.background_spin, policy_.keep_core)) {
      unfinished_.wait(rest, std::memory_order_acquire);
    }
  }
  if (!has_thrown_.exchange(false, std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  std::rethrow_exception(std::exchange(exception_, nullptr));
}

/// Stores an exception instead of throwing it: a helper has no caller to throw to, and `run` must
/// not return while helpers use its arguments.
void ReduceTeam::call(std::size_t piece, std::size_t member) noexcept {
  try {
    job_.call(job_.context, piece, member);
  } catch (...) {
    const MutexLock lock(mutex_);
    if (!exception_) exception_ = std::current_exception();
    has_thrown_.store(true, std::memory_order_relaxed);
  }
}

/// Runs pieces until none is left; returns the number of pieces that this thread ran.
std::uint32_t ReduceTeam::take_pieces(std::size_t member) {
  std::uint32_t taken = 0;
  std::uint32_t left = left_.load(std::memory_order_relaxed);
  while (left != 0 && left != kStop) {
    // After a successful exchange this piece is unfinished, so `job_` stays valid. This thread sees
    // `job_`, because it was written before `left_` was set and all later changes of `left_` are
    // read-modify-writes.
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      continue;
    }
    call(pieces_ - left, member);
    ++taken;
    left = left_.load(std::memory_order_relaxed);
  }
  return taken;
}

void ReduceTeam::help(std::size_t member) {
  Spinner spinner;
  for (;;) {
    const std::uint32_t left = left_.load(std::memory_order_relaxed);
    if (left == kStop) return;
    if (left == 0) {
      if (!spinner.pass(policy_.background_spin, policy_.keep_core)) {
        left_.wait(0, std::memory_order_relaxed);
        spinner.renew();
      }
      continue;
    }
    const std::uint32_t taken = take_pieces(member);
    if (taken == 0) continue;
    // The caller sleeps until the last piece is complete. It may already have returned and started
    // the next `run`, but the team still exists: its destructor waits for this thread.
    if (unfinished_.fetch_sub(taken, std::memory_order_acq_rel) == taken) {
      unfinished_.notify_one();
    }
    spinner.renew();
  }
}

}  // namespace kolo
