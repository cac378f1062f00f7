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

/// Ends a job or a group on one rank. After the first `submit` this rank begins no operation, and
/// its operations in flight end first, with or without an error:
///
///   open ──submit──► begun ──tell──► told ──its operations have ended, propose──► all agree ──►
///   closed
///
/// If other ranks begin an operation that this rank has not begun, the operation fails at once on
/// all ranks. So no rank waits for a rank that waits for the end.
///
/// Threads: the engine's.
class Closing final : public Waitable {
 public:
  enum class Stage : std::uint8_t { kOpen, kBegun, kTold, kProposed, kClosed };

  /// All arguments must outlive this object.
  Closing(Coordinator& coordinator, BucketRunner& runner, Operations& operations, int rank)
      : coordinator_(coordinator), runner_(runner), operations_(operations), rank_(rank) {}

  /// Accepts an operation of kind kClose.
  void submit(std::shared_ptr<Operation> close);

  Stage stage() const { return stage_; }
  bool has_begun() const { return stage_ != Stage::kOpen; }
  bool has_proposed() const { return stage_ >= Stage::kProposed; }

  /// Tells the other ranks that this rank begins nothing more. Precondition: the stage is kBegun.
  void tell();
  /// Declines the invitations to operations that this rank will not begin. Precondition: the stage
  /// is kTold or later.
  void decline_invitations();
  /// Proposes the end. Precondition: the stage is kTold; no operation of this rank is in flight.
  void propose();

  /// Handle a decision of all ranks. They return false if it does not concern the end.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// Fails all pending calls of `close`, because the job has failed.
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
  std::vector<std::shared_ptr<Operation>> calls_;  // pending calls of `close`
  std::optional<ProposalKey> proposal_;
  std::vector<Invitation> invitations_;  // to operations still in flight here, or new
};

}  // namespace kolo
