#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/coordinator/coordinator.h"
#include "runtime/buckets/bucket_runner.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operations.h"

namespace kolo {

/// One rank's part in the end of a job or a group. After the first `submit` this rank begins
/// nothing more, and the operations that it has begun end first, with or without an error:
///
///   open ──submit──► begun ──tell──► told ──all of its own is over, propose──► all agree ──►
///   closed
///
/// Operations that other ranks begin or have begun, and that this rank does not take part in, fail
/// at once on all ranks. So no rank waits for a rank that waits for the end.
///
/// Threads: the engine's.
class Closing final : public Waitable {
 public:
  enum class Stage : std::uint8_t { kOpen, kBegun, kTold, kProposed, kClosed };

  /// All arguments outlive it.
  Closing(Coordinator& coordinator, BucketRunner& runner, Operations& operations, int rank)
      : coordinator_(coordinator), runner_(runner), operations_(operations), rank_(rank) {}

  /// Accepts an operation of kind kClose.
  void submit(std::shared_ptr<Operation> close);

  Stage stage() const { return stage_; }
  bool has_begun() const { return stage_ != Stage::kOpen; }
  bool has_proposed() const { return stage_ >= Stage::kProposed; }

  /// Tells the other ranks. Precondition: the stage is kBegun.
  void tell();
  /// Declines the invitations to operations that this rank will not begin. Precondition: the stage
  /// is kTold or later.
  void decline_invitations();
  /// Precondition: the stage is kTold, and no operation of this rank is in flight.
  void propose();

  /// Handles a decision. Returns false if it does not concern the end.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// The job has failed.
  void fail_all(const Error& error) noexcept;

  int waiters() const override;
  bool is_watched() const override;

 private:
  bool comes_to(const ProposalKey& key);

  Coordinator& coordinator_;
  BucketRunner& runner_;
  Operations& operations_;
  const int rank_;
  Stage stage_ = Stage::kOpen;
  std::vector<std::shared_ptr<Operation>> calls_;  // waiting for the end
  std::optional<ProposalKey> proposal_;
  std::vector<Invitation> invitations_;  // accepted, or not yet looked at
};

}  // namespace kolo
