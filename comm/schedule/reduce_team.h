#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "comm/base/mutex.h"
#include "comm/base/wait_policy.h"

namespace kolo {

/// Threads that help the executor's thread with work that is divided into pieces. Each free thread
/// takes the next piece:
///
///   caller    calls | piece 0 | piece 2 | piece 3 | none left, waits for 4 | continues
///   helper    wakes up ... | piece 1 | piece 4 ............ | looks for more, then sleeps
///
/// A helper that gets no CPU time takes no piece and delays no thread. The caller waits only for
/// helpers that have begun a piece. Helpers access data only while `run` is in progress.
///
/// Threads: one at a time calls `run`; no thread is in `run` during construction and destruction.
/// Steady state allocates nothing, and makes no system call while helpers poll.
class ReduceTeam {  // NOLINT(clang-analyzer-optin.performance.Padding): a cache line for each.
 public:
  /// Starts `helpers` threads. A waiting thread polls for `policy.background_spin` before it
  /// sleeps. Errors: KoloError(kResources) if a thread cannot be started.
  ReduceTeam(int helpers, const WaitPolicy& policy);
  ~ReduceTeam();
  ReduceTeam(const ReduceTeam&) = delete;
  ReduceTeam& operator=(const ReduceTeam&) = delete;

  /// Number of threads, including the caller.
  std::size_t size() const { return helpers_.size() + 1; }

  /// Calls `work(piece, member)` once for each piece in [0, pieces), on any thread and in any
  /// order, and returns when all calls have returned. `member` is less than `size()` and differs
  /// between concurrent calls. `work` sees earlier writes of the caller, and the caller then sees
  /// the writes of `work`. If calls of `work` throw, `run` completes all pieces and then throws one
  /// of the exceptions.
  template <typename Work>
  void run(std::size_t pieces, const Work& work) {
    run(pieces,
        {.call = [](const void* context, std::size_t piece,
                    std::size_t member) { (*static_cast<const Work*>(context))(piece, member); },
         .context = &work});
  }

 private:
  struct Job {
    void (*call)(const void* context, std::size_t piece, std::size_t member) = nullptr;
    const void* context = nullptr;
  };

  void run(std::size_t pieces, const Job& job);
  void call(std::size_t piece, std::size_t member) noexcept;
  std::uint32_t take_pieces(std::size_t member);
  void help(std::size_t member);
  void stop();

  const WaitPolicy policy_;

  // These do not change while pieces are left or in progress.
  Job job_;
  std::uint32_t pieces_ = 0;

  Mutex mutex_;
  std::exception_ptr exception_ KOLO_GUARDED_BY(mutex_);  // the first exception in `run`
  std::atomic<bool> has_thrown_{false};                   // whether `exception_` is set

  // Numbers of pieces. Helpers sleep until `left_` rises; the caller until `unfinished_` is zero.
  alignas(64) std::atomic<std::uint32_t> left_{0};        // pieces not yet taken
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // pieces not yet complete
  alignas(64) std::vector<std::thread> helpers_;
};

}  // namespace kolo
