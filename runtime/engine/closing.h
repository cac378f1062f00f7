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

/// The end of a job or a group as one rank takes part in it. From the first `submit` on this rank
/// begins nothing more, and what it has begun ends first, well or with an error:
///
///   open ──submit──► begun ──tell──► told ──all of its own is over, propose──► all agree ──►
///   closed
///
/// What others begin once they are told, or had begun before, and this rank does not come to fails
/// on all ranks, at once. So nobody waits for a rank that waits for the end.
///
/// Threads: the engine's.
class Closing final : public Waited {
 public:
  enum class Stage : std::uint8_t { kOpen, kBegun, kTold, kProposed, kClosed };

  /// Everything outlives it.
  Closing(Coordinator& coordinator, BucketRunner& runner, Operations& operations, int rank)
      : coordinator_(coordinator), runner_(runner), operations_(operations), rank_(rank) {}

  /// Takes an operation of kind kClose.
  void submit(std::shared_ptr<Operation> close);

  Stage stage() const { return stage_; }
  bool has_begun() const { return stage_ != Stage::kOpen; }
  bool has_proposed() const { return stage_ >= Stage::kProposed; }

  /// Before: the stage is kBegun.
  void tell();
  /// Ends what this rank is invited to and does not come to. Before: the stage is kTold or later.
  void decline_invitations();
  /// Before: the stage is kTold, and nothing of this rank is under way.
  void propose();

  /// Takes a decision. Returns false if it is about something else.
  bool accept(const Frame& decision);
  bool reject(const Topic& topic, const Error& error);

  /// The job has failed.
  void fail_all(const Error& error) noexcept;

  int waiters() const override;
  bool is_watched() const override;

 private:
  bool comes_to(const Topic& topic);

  Coordinator& coordinator_;
  BucketRunner& runner_;
  Operations& operations_;
  const int rank_;
  Stage stage_ = Stage::kOpen;
  std::vector<std::shared_ptr<Operation>> calls_;  // that wait for the end
  std::optional<Topic> proposal_;
  std::vector<Invitation> invitations_;  // to what this rank comes to, or has not looked at
};

}  // namespace kolo
