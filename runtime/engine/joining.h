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
  std::atomic<std::uint64_t> parts{0};  ///< Invitations to operations so far.
};

/// Runs a rank that is out of data, until all ranks are. When other ranks invite this rank to an
/// operation, it runs the operation without data, or declines.
///
///   idle ──submit──► ends its operations ──► joined ──all have──► ends invited ones ──► idle
///
/// Threads: the engine's.
class Joining {
 public:
  /// All arguments must outlive this object.
  Joining(Coordinator& coordinator, BucketRunner& runner, Operations& operations,
          GradientSets& gradients, int rank)
      : coordinator_(coordinator),
        runner_(runner),
        operations_(operations),
        gradients_(gradients),
        rank_(rank) {}

  void submit(const std::shared_ptr<JoinTicket>& ticket);

  bool is_busy() const { return ticket_ != nullptr; }
  /// Advances joining as far as possible, after the decisions. Returns whether anything advanced.
  bool poll();

  /// Handle a decision of all ranks. Return false if the decision does not concern joining.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// Fails the ticket, because the job has failed.
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
  std::vector<ProposalKey> wanted_;     // bucket iterations still to finish here
  Nobody nobody_;                       // for votes: no thread waits for them
};

}  // namespace kolo
