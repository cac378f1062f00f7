#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/coordinator/coordinator.h"
#include "runtime/buckets/bucket_runner.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/operations.h"
#include "runtime/gradients/gradient_sets.h"

namespace kolo {

/// The ticket of a rank that has run out of data and waits for all others.
struct JoinTicket final : TicketState {
  std::string subject() const override { return "join"; }

  /// Rank that joined last; valid once the ticket is done without an error.
  int last = -1;
  std::atomic<std::uint64_t> parts{0};  ///< JoinAnnouncements accepted so far.
};

/// The behaviour of a rank that has run out of data until all ranks have: it takes part in
/// operations of others when they invite it, or declines.
///
///   idle ──submit──► waits for its own ──► joined ──all have──► ends its parts ──► idle
///
/// Threads: the engine's.
class Joining {
 public:
  /// All arguments outlive it.
  Joining(Coordinator& coordinator, BucketRunner& runner, Operations& operations,
          GradientSets& gradients, int rank)
      : coordinator_(coordinator),
        runner_(runner),
        operations_(operations),
        gradients_(gradients),
        rank_(rank) {}

  void submit(const std::shared_ptr<JoinTicket>& ticket);

  bool is_busy() const { return ticket_ != nullptr; }
  /// Advances what can be advanced; called after the decisions. Returns whether anything advanced.
  bool poll();

  /// Handles a decision. Returns false if it does not concern joining.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// The job has failed.
  void fail_all(const Error& error) noexcept;

 private:
  struct Nobody : Waitable {
    int waiters() const override { return 0; }
  };

  bool begin();
  bool take_invitations();
  void take_parts();
  void decline(const ProposalKey& key, std::string_view text, std::string_view why);
  std::shared_ptr<JoinTicket> leave();

  Coordinator& coordinator_;
  BucketRunner& runner_;
  Operations& operations_;
  GradientSets& gradients_;
  const int rank_;
  std::shared_ptr<JoinTicket> ticket_;  // null while this rank has data
  std::optional<ProposalKey> vote_;     // set once this rank has joined
  std::optional<int> last_;             // set once all ranks have joined
  std::vector<ProposalKey> wanted_;     // iterations of buckets that have not ended here
  Nobody nobody_;  // counts as waiting for the vote: this rank goes on when others begin something
};

}  // namespace kolo
