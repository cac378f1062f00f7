#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/schedule/joint_ledger.h"
#include "comm/schedule/kernel_pieces.h"
#include "comm/schedule/step.h"
#include "comm/transport/transport.h"

namespace kolo {

/// One rank's side of a kJoint step.
///
///   arrive          tells the others; waits until all are in
///   take, finish    a piece after the other, until none is left
///                   waits until others have done what they have taken
///
/// Threads: the executor's. Allocates nothing but when it is made.
class JointSum {
 public:
  struct Where {
    std::uint32_t first_flag = 0;  ///< Number of the schedule's first.
    std::uint64_t flag_base = 0;   ///< Iteration n raises flags to flag_base + n + 1.
    std::uint64_t first_iteration = 0;
    std::span<std::byte> ledger = {};  ///< As mapped here.
  };

  /// `step` and `transport` outlive it.
  JointSum(Transport& transport, const Step& step, std::size_t element_bytes, const Where& where);

  void arrive(std::uint64_t iteration);
  /// Whether the next move is not this rank's.
  bool waits() const { return is_used_up_ ? !is_over() : !has_begun(); }
  bool is_over() const { return is_used_up_ && ledger_.is_done(iteration_); }

  /// A piece that is this rank's to do; nothing if there is none left.
  std::optional<KernelPiece> take();
  /// The piece is done; if it was the last, those who sleep are woken.
  void finish();

  /// Others that this rank waits for.
  void append_awaited_peers(std::vector<int>& peers) const;

 private:
  std::uint32_t flag() const { return where_.first_flag + step_.ordinal; }
  bool has_begun() const;
  bool has_arrived(int peer) const;

  Transport& transport_;
  const Step& step_;
  const Where where_;
  const std::size_t piece_count_;  // elements
  JointLedger ledger_;
  std::uint64_t iteration_ = 0;
  bool is_used_up_ = false;  // no piece is left
};

}  // namespace kolo
