#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/clock.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/loan.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step_progress.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The memory of a host bucket and the kernels that work on it: made at plan time, used in every
/// iteration. Threads: the executor's, but for `compute`. Steady state allocates nothing.
class HostRun {
 public:
  /// Commits arena memory; `pause` is called now and then, for that can take seconds. `schedule`
  /// and `binding` outlive the run; at most `threads` compute at a time. Errors:
  /// KoloError(kResources).
  HostRun(Transport& transport, const Schedule& schedule, const Binding& binding,
          std::size_t threads = 1, const Pause& pause = {});

  /// Whether the step is one of these kernels.
  static bool runs(const Schedule& schedule, const Step& step);

  void begin(std::uint64_t iteration);

  /// Leaves the note of a kOffer step.
  void offer(const Step& step);
  /// Leaves that of a kPack step to Region::kLent, whose pieces are computed afterwards.
  void lend(const Step& step);

  /// Takes back what is offered in this iteration, which is given up: peers that have not begun to
  /// write there no longer do.
  void revoke_offers();
  /// After `revoke_offers`: no peer writes there any more, so that the tensors are the caller's
  /// again.
  bool is_revoked() const;

  /// Where a range is in this iteration; not of the caller's tensors.
  std::byte* address(const Range& range) const;

  /// The memory of a payload.
  std::span<std::byte> payload(const Range& range) const;

  /// Runs a piece of a kernel. Threads: each with a number of its own below `threads`; what is
  /// computed at the same time does not depend on each other.
  void compute(const KernelPiece& piece, std::size_t thread = 0);

  /// Runs a codec step, all of it, while nothing else computes.
  void run_codec(const Step& step);

 private:
  /// Operands of a reduction; one for each thread.
  struct Operands {
    std::vector<void*> outputs;
    std::vector<const void*> sources;
    AlignedMemory packed;  // a contribution, where it is packed before it is summed
  };

  LoanNote& note(const Range& loan) const;
  /// Notes where the elements of a loan are: in the tensor, if peers reach it well, or in its slot.
  /// `tensor`: where it has these elements, one after the other; null if it does not.
  void leave_note(const Step& step, const std::byte* tensor);
  /// The memory of notes may hold anything.
  void clear_offers();
  /// Whether peers read or write the elements in the slot. `loan`: the whole of it, not a piece.
  bool is_in_slot(const Range& loan) const;
  /// Copies what a peer lends from its private memory to this rank's tensors.
  void fetch(const Range& lent, const LoanNote& from);
  /// Writes this rank's contribution where a peer has offered to have it.
  void put(const Range& offered, const Range& source, Operands& operands);
  CodecElements elements(const Range& range) const;
  void append_payloads(const Range& range, std::vector<std::span<std::byte>>& to) const;
  void unpack(const KernelPiece& piece);
  void copy_input(const Range& input);
  void exchange(const KernelPiece& piece);
  void unpack_and_pack(const KernelPiece& piece);
  bool is_result(const Step& sum) const;
  void reduce(const KernelPiece& piece, Operands& operands);
  void reduce_tensor(const Step& step, std::size_t first, const Packer::Piece& tensor,
                     Operands& operands);

  Transport& transport_;
  const Schedule& schedule_;
  const Binding& binding_;
  const std::size_t element_bytes_;
  const std::size_t turn_bytes_;
  const Overflow overflow_;            // a dtype that was chosen for the wire has none
  std::vector<std::byte*> arenas_;     // by rank; null where not mapped
  std::span<const std::byte> shared_;  // own memory that peers can read
  AlignedMemory scratch_;
  AlignedMemory payloads_;
  std::size_t turn_offset_;  // of this iteration's staging memory in the arena
  bool is_open_ = false;     // peers can read private memory in this iteration
  std::vector<Operands> operands_;
  std::vector<std::span<std::byte>> payload_targets_, payload_sources_;  // of a codec step
};

}  // namespace kolo
