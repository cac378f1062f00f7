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
///   caller    calls | piece 0 | piece 2 | piece 3 | nothing left, waits for 4 | goes on
///   helper    wakes up ... | piece 1 | piece 4 ............ | looks for more, then sleeps
///
/// A helper that gets no core takes no piece and delays no other; only one that loses its core
/// within a piece is waited for. Outside `run` helpers touch nothing.
///
/// Threads: one at a time calls `run`; made and destroyed outside it. Steady state allocates
/// nothing, and makes no system call while helpers look.
class ReduceTeam {  // NOLINT(clang-analyzer-optin.performance.Padding): a cache line for each.
 public:
  /// `helpers` threads beside the caller. A thread that waits polls for `policy.background_spin`
  /// before it sleeps. Errors: KoloError(kResources) if threads cannot be started.
  ReduceTeam(int helpers, const WaitPolicy& policy);
  ~ReduceTeam();
  ReduceTeam(const ReduceTeam&) = delete;
  ReduceTeam& operator=(const ReduceTeam&) = delete;

  /// The threads that work, the caller among them.
  std::size_t size() const { return helpers_.size() + 1; }

  /// Calls `work(piece, member)` once for each piece below `pieces`, on any thread and in any
  /// order, and returns when all is done. `member` is below `size()` and tells those apart that
  /// work at the same time. What the caller has written `work` sees, and the reverse. If calls of
  /// `work` throw, `run` throws one of these exceptions once all pieces have been called for.
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

  // Constant while pieces are left or being computed.
  Job job_;
  std::uint32_t pieces_ = 0;

  Mutex mutex_;
  std::exception_ptr exception_ KOLO_GUARDED_BY(mutex_);  // the first of a `run`
  std::atomic<bool> has_thrown_{false};                   // in this `run`

  // Each counts down; helpers sleep on the first, the caller on the second.
  alignas(64) std::atomic<std::uint32_t> left_{0};        // not taken by a thread
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // taken or not
  alignas(64) std::vector<std::thread> helpers_;
};

}  // namespace kolo
