#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "comm/base/clock.h"
#include "comm/message/received.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operation_calls.h"
#include "runtime/calls/row_sums/row_reduction.h"
#include "runtime/engine/engine.h"
#include "runtime/message/message_calls.h"
#include "runtime/wait/progress_engine.h"
#include "runtime/wait/user_threads.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

/// State that all tickets of one group share. It may outlive the runtime.
struct TicketGroup {
  const WaitLimit limit;
  const std::shared_ptr<ProgressEngine> progress_engine;
  const UserThreads threads;
  /// See `Runtime::abort`. Precondition: an operation is not done, so the runtime exists.
  const std::function<void(std::string_view why)> leave_job;
  OperationPool operations = {};
  MessagePool messages = {};
  /// Wait habits of the program, by a hash of the key. Operations with equal hashes share a habit.
  std::array<WaitHabit, 256> habits = {};
};

/// An operation that was submitted, shared by its tickets. The last ticket destroys it, which ends
/// the operation: see `Ticket`.
class InFlight {
 public:
  using What = std::variant<std::shared_ptr<Operation>, std::shared_ptr<MessageCall>,
                            std::shared_ptr<RowReduction>>;

  /// Begins the operation by submitting it to `engine`, which must live until the operation is
  /// done. `key` selects the wait habit.
  InFlight(std::shared_ptr<TicketGroup> group, Engine& engine, What what, std::uint64_t key);
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  TicketState& state() { return state_; }

  // These are the functions of `Ticket`.
  void wait();
  bool wait_for(std::chrono::milliseconds limit);
  void wait(NativeStream stream);
  bool wait_for(std::chrono::milliseconds limit, NativeStream stream);
  Received received();
  void cancel();
  std::vector<RowSums> sums();

 private:
  void note_wait();
  template <typename Wait>
  auto tell(const Wait& wait);
  bool uses_memory() const;
  bool ends_within_limit() noexcept;
  void end() noexcept;

  const std::shared_ptr<TicketGroup> group_;
  Engine& engine_;
  const What what_;
  TicketState& state_;
  WaitHabit& habit_;
  const int exceptions_;
  TimePoint begun_at_;
  std::atomic<bool> is_waited_for_ = false;
  std::atomic<bool> has_ended_well_ = false;  // a wait saw success; the object may be reused
  std::atomic<bool> has_told_error_ = false;  // a wait has thrown the operation's error
};

}  // namespace kolo
