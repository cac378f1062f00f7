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

/// Threads that help the executor's thread with work that can be cut into pieces. A free thread
/// takes the next piece:
///
///   caller    calls | piece 0 | piece 2 | piece 3 | none left, waits for 4 | continues
///   helper    wakes up ... | piece 1 | piece 4 ............ | looks for more, then sleeps
///
/// A helper that gets no core takes no piece and delays no thread; the caller waits only for a
/// helper that loses its core within a piece. Outside `run` helpers access no data.
///
/// Threads: one at a time calls `run`; no thread may be in `run` during construction and
/// destruction. Steady state allocates nothing, and makes no system call while helpers poll.
class ReduceTeam {  // NOLINT(clang-analyzer-optin.performance.Padding): a cache line for each.
 public:
  /// `helpers`: number of threads besides the caller. A waiting thread polls for
  /// `policy.background_spin` before it sleeps. Errors: KoloError(kResources) if threads cannot be
  /// started.
  ReduceTeam(int helpers, const WaitPolicy& policy);
  ~ReduceTeam();
  ReduceTeam(const ReduceTeam&) = delete;
  ReduceTeam& operator=(const ReduceTeam&) = delete;

  /// Number of threads, including the caller.
  std::size_t size() const { return helpers_.size() + 1; }

  /// Calls `work(piece, member)` once for each piece below `pieces`, on any thread and in any
  /// order, and returns when all calls have returned. `member` is below `size()` and differs
  /// between concurrent calls. `work` sees the caller's earlier writes, and the caller then sees
  /// those of `work`. If calls of `work` throw, `run` throws one of these exceptions after all
  /// pieces have been called.
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

  // Constant while pieces are left or in progress.
  Job job_;
  std::uint32_t pieces_ = 0;

  Mutex mutex_;
  std::exception_ptr exception_ KOLO_GUARDED_BY(mutex_);  // the first exception of a `run`
  std::atomic<bool> has_thrown_{false};                   // in this `run`

  // Counters that fall to zero; helpers sleep on the first, the caller on the second.
  alignas(64) std::atomic<std::uint32_t> left_{0};        // not yet taken by a thread
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // not yet complete
  alignas(64) std::vector<std::thread> helpers_;
};

}  // namespace kolo
