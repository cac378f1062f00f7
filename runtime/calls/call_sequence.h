#pragma once

#include <memory>
#include <vector>

#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operations.h"

namespace kolo {

/// A call that several operations make up, of which later ones depend on the results of earlier
/// ones. Its own ticket is for calls that run in the background.
///
/// Threads: one at a time; that of a blocking call, or the engine's.
class CallSequence : public TicketState {
 public:
  /// Operations that run at the same time.
  using Stage = std::vector<std::shared_ptr<Operation>>;

  /// Takes up the results of the last stage, and gives the next one; none when nothing is left but
  /// work of a device. Before: all of the last stage has ended well.
  virtual Stage next() = 0;
  /// Whether that work is done, too, which ends the call. Before: there is no next stage.
  virtual bool is_settled() const { return true; }
};

/// The sequences of one engine that run in the background.
///
/// Threads: the engine's. Errors: what `CallSequence::next` throws, which may be this rank's alone.
class CallSequences {
 public:
  /// `operations` outlives it.
  explicit CallSequences(Operations& operations) : operations_(operations) {}

  void submit(std::shared_ptr<CallSequence> call);
  bool is_idle() const { return under_way_.empty(); }
  /// One waits for a device, which must be polled for.
  bool awaits_device() const;
  /// Moves on the sequences whose last stage is over. Returns whether there was any.
  bool poll();
  /// The job has failed.
  void fail_all(const Error& error) noexcept;

 private:
  struct UnderWay {
    std::shared_ptr<CallSequence> call;  // null when it is over
    CallSequence::Stage stage;           // empty after the last one
  };

  static bool is_due(const UnderWay& each);
  void go_on(UnderWay& each);
  void begin_stage(UnderWay& each);

  Operations& operations_;
  std::vector<UnderWay> under_way_;  // in the order in which they came
};

}  // namespace kolo
