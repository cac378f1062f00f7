#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/clock.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/codec.h"
#include "comm/schedule/exposed_buffer.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step_progress.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The memory of a host bucket and the kernels that work on it. It is made at plan time and used in
/// every iteration. Threads: the executor's, except for `compute`. Steady state allocates nothing.
class HostRun {
 public:
  /// Commits arena memory, which can take seconds, and calls `pause` repeatedly meanwhile.
  /// `schedule` and `binding` must outlive the run. At most `threads` threads call `compute`
  /// concurrently. Errors: KoloError(kResources).
  HostRun(Transport& transport, const Schedule& schedule, const Binding& binding,
          std::size_t threads = 1, const Pause& pause = {});

  /// Whether the step works on the memory of a host bucket: kReduce, kCopy, kPack, kUnpack,
  /// kExchange or kCodec.
  static bool runs(const Schedule& schedule, const Step& step);

  void begin(std::uint64_t iteration);

  /// Writes the note of a kExpose step, which tells peers where to write.
  void expose_result(const Step& step);
  /// Writes the note of a kPack step to Region::kExposedInput. `compute` then runs its pieces.
  void expose_input(const Step& step);

  /// Revokes the exposed results of this iteration, which the caller drops. Afterwards no peer
  /// begins to write to them.
  void revoke_exposures();
  /// Whether no peer writes to exposed results any more, so that the caller may reuse its tensors.
  /// Before: `revoke_exposures` was called.
  bool is_revoked() const;

  /// Returns the address of a range in this iteration. Before: the range is not in the caller's
  /// tensors, unless they are exposed.
  std::byte* address(const Range& range) const;

  /// Returns a range of kBucket or kUser as the elements of a codec.
  CodecElements elements(const Range& range) const;

  /// Runs a piece of a kernel. Threads: each passes its own number `thread`, below `threads` of the
  /// constructor. Pieces that run concurrently must not depend on each other.
  void compute(const KernelPiece& piece, std::size_t thread = 0);

 private:
  /// The operands of a reduction; each thread has one.
  struct Operands {
    std::vector<void*> outputs;
    std::vector<const void*> sources;
    AlignedMemory packed;  // a contribution that is packed before it is summed
  };

  ExposureNote& note(const Range& exposed_buffer) const;
  /// Writes the note of an exposed buffer. Its elements are in the tensors if peers can access them
  /// efficiently, otherwise in the slot. `tensor` is the address of the elements if they are
  /// contiguous in a tensor, otherwise null.
  void leave_note(const Step& step, const std::byte* tensor);
  /// Clears all notes, because new staging memory has arbitrary content.
  void clear_exposures();
  /// Whether peers access the elements of `exposed_buffer` in its slot. Before: it is a whole
  /// exposed buffer, not a piece of one.
  bool is_in_slot(const Range& exposed_buffer) const;
  /// Copies elements that a peer exposes in private memory to this rank's tensors.
  void fetch(const Range& exposed, const ExposureNote& from);
  /// Writes this rank's contribution `source` to memory that a peer exposes.
  void put(const Range& exposed, const Range& source, Operands& operands);
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
  const Overflow overflow_;            // kLargest if the dtype was chosen for the wire
  std::vector<std::byte*> arenas_;     // by rank; null for ranks whose memory is not mapped
  std::span<const std::byte> shared_;  // the part of this rank's memory that peers have mapped
  AlignedMemory scratch_;
  std::size_t turn_offset_;  // offset of this iteration's staging memory in the arena, in bytes
  bool is_open_ = false;     // whether peers can access private memory in this iteration
  std::vector<Operands> operands_;
};

}  // namespace kolo
