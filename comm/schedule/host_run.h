#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/clock.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/exposed_buffer.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step_progress.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The memory of a host bucket and the kernels that work on it: made at plan time, used in every
/// iteration. Threads: the executor's, except for `compute`. Steady state allocates nothing.
class HostRun {
 public:
  /// Commits arena memory, which can take seconds; `pause` is called repeatedly meanwhile.
  /// `schedule` and `binding` outlive the run; at most `threads` threads compute at a time. Errors:
  /// KoloError(kResources).
  HostRun(Transport& transport, const Schedule& schedule, const Binding& binding,
          std::size_t threads = 1, const Pause& pause = {});

  /// Whether the step is one of the kernels below.
  static bool runs(const Schedule& schedule, const Step& step);

  void begin(std::uint64_t iteration);

  /// Writes the note of a kExpose step.
  void expose_result(const Step& step);
  /// Writes the note of a kPack step to Region::kExposedInput, whose pieces are computed
  /// afterwards.
  void expose_input(const Step& step);

  /// Revokes the exposes of this iteration, which is given up: peers that have not begun to write
  /// to the exposed memory no longer do so.
  void revoke_exposures();
  /// After `revoke_exposures`: whether no peer writes to exposed memory any more, so that the
  /// tensors belong to the caller again.
  bool is_revoked() const;

  /// Address of a range in this iteration; not for the caller's tensors.
  std::byte* address(const Range& range) const;

  /// The memory of a payload.
  std::span<std::byte> payload(const Range& range) const;

  /// Runs a piece of a kernel. Threads: each calls with its own number below `threads`; pieces that
  /// are computed concurrently do not depend on each other.
  void compute(const KernelPiece& piece, std::size_t thread = 0);

  /// Runs a whole codec step, while no other kernel runs.
  void run_codec(const Step& step);

 private:
  /// Operands of a reduction, per thread.
  struct Operands {
    std::vector<void*> outputs;
    std::vector<const void*> sources;
    AlignedMemory packed;  // a contribution that is packed before it is summed
  };

  ExposureNote& note(const Range& exposed_buffer) const;
  /// Notes where the elements of an exposed buffer are: in the tensor, if peers can reach it
  /// efficiently, otherwise in the slot. `tensor`: address of these elements if they are contiguous
  /// there; otherwise null.
  void leave_note(const Step& step, const std::byte* tensor);
  /// Clears the notes; their memory may hold anything before.
  void clear_exposures();
  /// Whether peers access the elements in the slot. `exposed_buffer`: a whole exposed buffer, not a
  /// piece.
  bool is_in_slot(const Range& exposed_buffer) const;
  /// Copies elements that a peer exposes from its private memory to this rank's tensors.
  void fetch(const Range& exposed, const ExposureNote& from);
  /// Writes this rank's contribution to memory that a peer has exposed.
  void put(const Range& exposed, const Range& source, Operands& operands);
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
  const Overflow overflow_;            // a dtype chosen for the wire saturates
  std::vector<std::byte*> arenas_;     // by rank; null where not mapped
  std::span<const std::byte> shared_;  // this rank's memory that peers can read
  AlignedMemory scratch_;
  AlignedMemory payloads_;
  std::size_t turn_offset_;  // offset in the arena of this iteration's staging memory
  bool is_open_ = false;     // whether peers can read private memory in this iteration
  std::vector<Operands> operands_;
  std::vector<std::span<std::byte>> payload_targets_, payload_sources_;  // for a codec step
};

}  // namespace kolo
