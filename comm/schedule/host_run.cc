#include "comm/schedule/host_run.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "comm/base/check.h"
#include "comm/schedule/codec.h"

namespace kolo {
namespace {

/// Bytes of contributions that are packed at a time before they are summed; they fit in the
/// first-level cache.
constexpr std::size_t kPackedBytes = std::size_t{16} << 10;

Range part(Range range, std::size_t first, std::size_t count) {
  range.offset += first;
  range.count = count;
  return range;
}

bool lies_in(std::span<const std::byte> memory, const std::byte* begin, std::size_t bytes) {
  const std::less<> before;
  return begin != nullptr && !before(begin, memory.data()) &&
         !before(memory.data() + memory.size(), begin + bytes);
}

bool is_tensor(const Range& range) {
  return range.region == Region::kUser || range.region == Region::kInput;
}

/// Returns an operand in the caller's tensors, if any. All such operands are the same elements.
std::optional<Range> tensor_operand(const Step& step) {
  if (is_tensor(step.target)) return step.target;
  for (const Range& source : step.sources) {
    if (is_tensor(source)) return source;
  }
  return std::nullopt;
}

}  // namespace

HostRun::HostRun(Transport& transport, const Schedule& schedule, const Binding& binding,
                 std::size_t threads, const Pause& pause)
    : transport_(transport),
      schedule_(schedule),
      binding_(binding),
      element_bytes_(size_of(schedule.layout.dtype)),
      turn_bytes_(arena_needs(schedule).turn_bytes),
      overflow_(schedule.layout.placement == Placement::kStaged ? Overflow::kLargest
                                                                : Overflow::kInfinity),
      scratch_(allocate_aligned(schedule.scratch_count * element_bytes_)),
      turn_offset_(binding.staging_offset),
      operands_(threads) {
  const ArenaNeeds needs = arena_needs(schedule);
  transport.commit(binding.arena_offset, needs.bucket_bytes, pause);
  transport.commit(binding.staging_offset, needs.staging_bytes, pause);
  for (int rank = 0; rank < transport.world_size(); ++rank) {
    arenas_.push_back(transport.is_mapped(rank) ? transport.memory(rank).data() : nullptr);
  }
  shared_ = transport.shared_memory();
  std::size_t most_sources = 0, most_mirrors = 0;
  for (const Step& step : schedule.steps) {
    most_sources = std::max(most_sources, step.sources.size());
    most_mirrors = std::max(most_mirrors, step.mirrors.size());
  }
  for (Operands& operands : operands_) {
    operands.sources.reserve(most_sources);
    operands.outputs.reserve(most_mirrors + 1);
    if (binding.packs_contributions) operands.packed = allocate_aligned(kPackedBytes);
  }
  clear_exposures();
}

bool HostRun::runs(const Schedule& schedule, const Step& step) {
  return schedule.layout.memory == MemoryKind::kHost &&
         (step.kind == StepKind::kReduce || step.kind == StepKind::kCopy ||
          step.kind == StepKind::kPack || step.kind == StepKind::kUnpack ||
          step.kind == StepKind::kExchange || step.kind == StepKind::kCodec);
}

void HostRun::begin(std::uint64_t iteration) {
  turn_offset_ = binding_.staging_offset + iteration % schedule_.staging_turns * turn_bytes_;
  // It is unknown whether peers can access memory that a device library allocated.
  is_open_ = binding_.bounce_buffer == nullptr && transport_.is_open_to_peers();
}

std::byte* HostRun::address(const Range& range) const {
  const std::size_t offset = range.offset * element_bytes_;
  if (range.region == Region::kScratch) return scratch_.get() + offset;
  std::byte* const arena = arenas_[static_cast<std::size_t>(range.rank)];
  if (ExposedBuffer::is_exposed(range)) {
    const ExposureNote& at = note(range);
    std::byte* const origin =
        at.is_private != 0 ? reinterpret_cast<std::byte*>(at.origin) : arena + at.origin;
    return origin + offset;
  }
  return arena + offset + (range.region == Region::kStaging ? turn_offset_ : binding_.arena_offset);
}

ExposureNote& HostRun::note(const Range& exposed_buffer) const {
  return *reinterpret_cast<ExposureNote*>(
      address({exposed_buffer.rank, Region::kStaging, exposed_buffer.slot, exposed_buffer.count}));
}

void HostRun::leave_note(const Step& step, const std::byte* tensor) {
  const Range& exposed_buffer = step.target;
  const std::span<const std::byte> elements(tensor, exposed_buffer.count * element_bytes_);
  const bool is_mapped = tensor != nullptr && lies_in(shared_, tensor, elements.size());
  const bool is_private = tensor != nullptr && !is_mapped && is_open_ && step.for_copies &&
                          (binding_.exposes_small_pages || transport_.is_in_huge_pages(elements));
  const std::byte* const from =
      is_mapped || is_private
          ? tensor
          : address(ExposedBuffer::elements(exposed_buffer, schedule_.layout.dtype));
  const std::byte* const arena = arenas_[static_cast<std::size_t>(exposed_buffer.rank)];
  const std::int64_t place = is_private ? reinterpret_cast<std::int64_t>(from) : from - arena;
  ExposureNote& exposure_note = note(exposed_buffer);
  exposure_note.origin = place - static_cast<std::int64_t>(exposed_buffer.offset * element_bytes_);
  exposure_note.is_private = is_private ? 1 : 0;
  exposure_note.writers.store(0, std::memory_order_relaxed);
}

// Contributions that the packer scales are not in memory yet, so they pass through the slot.
void HostRun::expose_input(const Step& step) {
  const Range& exposed = step.target;
  const Packer::Piece tensor = binding_.packer->piece(exposed.offset, exposed.count);
  const bool is_whole = !binding_.packs_contributions && tensor.count == exposed.count;
  leave_note(step, is_whole ? tensor.input : nullptr);
}

void HostRun::expose_result(const Step& step) {
  const Range& exposed = step.target;
  const Packer::Piece tensor = binding_.packer->piece(exposed.offset, exposed.count);
  leave_note(step, tensor.count == exposed.count ? tensor.data : nullptr);
}

void HostRun::fetch(const Range& exposed, const ExposureNote& from) {
  for (std::size_t at = exposed.offset; at < exposed.end();) {
    const Packer::Piece piece = binding_.packer->piece(at, exposed.end() - at);
    if (piece.data != nullptr) {
      transport_.read_memory(exposed.rank,
                             static_cast<std::uint64_t>(from.origin) + at * element_bytes_,
                             {piece.data, piece.count * element_bytes_});
    }
    at += piece.count;
  }
}

void HostRun::revoke_exposures() {
  for (const Step& step : schedule_.steps) {
    if (step.kind != StepKind::kExpose) continue;
    note(step.target).writers.fetch_or(ExposureNote::kRevoked, std::memory_order_acq_rel);
  }
}

bool HostRun::is_revoked() const {
  return std::ranges::none_of(schedule_.steps, [this](const Step& step) {
    return step.kind == StepKind::kExpose &&
           note(step.target).writers.load(std::memory_order_acquire) != ExposureNote::kRevoked;
  });
}

void HostRun::clear_exposures() {
  for (std::uint32_t turn = 0; turn < schedule_.staging_turns; ++turn) {
    turn_offset_ = binding_.staging_offset + turn * turn_bytes_;
    for (const Step& step : schedule_.steps) {
      if (step.kind == StepKind::kExpose) note(step.target).writers.store(0);
    }
  }
  turn_offset_ = binding_.staging_offset;
}

void HostRun::put(const Range& exposed, const Range& source, Operands& operands) {
  const ExposureNote& to = note(exposed);
  if (to.is_private == 0) {
    return binding_.packer->pack(source.offset, source.count, address(exposed),
                                 binding_.unpack_stores);
  }
  const auto write = [&](std::size_t at, const std::byte* from, std::size_t count) {
    transport_.write_memory(exposed.rank,
                            static_cast<std::uint64_t>(to.origin) + at * element_bytes_,
                            {from, count * element_bytes_});
  };
  const std::size_t longest =
      binding_.packs_contributions ? kPackedBytes / element_bytes_ : source.count;
  for (std::size_t at = source.offset; at < source.end();) {
    const Packer::Piece piece = binding_.packer->piece(at, std::min(longest, source.end() - at));
    if (piece.input != nullptr && binding_.packs_contributions) {
      binding_.packer->pack(at, piece.count, operands.packed.get(), Stores::kCached);
      write(at, operands.packed.get(), piece.count);
    } else if (piece.input != nullptr) {
      write(at, piece.input, piece.count);
    }
    at += piece.count;
  }
}

bool HostRun::is_in_slot(const Range& exposed_buffer) const {
  return address(exposed_buffer) ==
         address(ExposedBuffer::elements(exposed_buffer, schedule_.layout.dtype));
}

CodecElements HostRun::elements(const Range& range) const {
  if (range.count == 0) return {};
  const bool is_user = range.region == Region::kUser;
  return {.data = is_user ? nullptr : address(range),
          .tensors = binding_.packer.get(),
          .offset = range.offset,
          .count = range.count};
}

void HostRun::compute(const KernelPiece& piece, std::size_t thread) {
  const Step& step = *piece.step;
  const Range target = part(step.target, piece.first, piece.count);
  const Range source = part(step.sources[0], piece.first, piece.count);
  std::optional<ExposureAccess> visit;
  if (target.region == Region::kExposedResult) visit.emplace(note(target));
  if (visit && !visit->is_allowed()) return;
  switch (step.kind) {
    case StepKind::kReduce:
      reduce(piece, operands_[thread]);
      break;
    case StepKind::kCopy:
      convert(schedule_.layout.dtype, address(target), schedule_.layout.dtype, address(source),
              piece.count, 1.0);
      break;
    case StepKind::kPack:
      if (target.region == Region::kExposedInput) {
        if (!is_in_slot(step.target)) break;
        const Range slot = ExposedBuffer::elements(step.target, schedule_.layout.dtype);
        binding_.packer->pack(source.offset, piece.count,
                              address(part(slot, piece.first, piece.count)),
                              binding_.exposure_stores);
      } else if (target.region == Region::kExposedResult) {
        put(target, source, operands_[thread]);
      } else {
        binding_.packer->pack(source.offset, piece.count, address(target), Stores::kCached);
      }
      break;
    case StepKind::kUnpack:
      unpack(piece);
      break;
    case StepKind::kExchange:
      binding_.packs_contributions ? unpack_and_pack(piece) : exchange(piece);
      break;
    default:
      break;
  }
}

void HostRun::unpack(const KernelPiece& piece) {
  const Range& whole = piece.step->sources[0];
  const Range target = part(piece.step->target, piece.first, piece.count);
  const Range source = part(whole, piece.first, piece.count);
  if (source.region == Region::kInput) return copy_input(source);
  if (source.region == Region::kExposedResult && !is_in_slot(whole)) return;
  if (source.region == Region::kExposedInput && source.rank != schedule_.rank) {
    const ExposureNote& from = note(source);
    if (from.is_private != 0) return fetch(source, from);
  }
  binding_.packer->unpack(target.offset, target.count, address(source), binding_.unpack_stores);
}

void HostRun::copy_input(const Range& input) {
  const DType dtype = schedule_.layout.dtype;
  for (std::size_t at = input.offset; at < input.end();) {
    const Packer::Piece piece = binding_.packer->piece(at, input.end() - at);
    if (piece.input != nullptr && binding_.packs_contributions) {
      binding_.packer->pack(at, piece.count, piece.data, Stores::kCached);
    } else if (piece.input != nullptr) {
      convert(dtype, piece.data, dtype, piece.input, piece.count, 1.0, binding_.unpack_stores);
    }
    at += piece.count;
  }
}

void HostRun::exchange(const KernelPiece& piece) {
  const Step& step = *piece.step;
  const DType dtype = schedule_.layout.dtype;
  const std::size_t end = piece.first + piece.count;
  for (std::size_t first = piece.first; first < end;) {
    const Packer::Piece former =
        binding_.packer->piece(step.mirrors[0].offset + first, end - first);
    const Packer::Piece next = binding_.packer->piece(step.sources[1].offset + first, former.count);
    std::byte* const slot = address(part(step.target, first, next.count));
    // Elements in a gap belong to no tensor on any rank, so they need no copy.
    if (former.data == nullptr && next.data != nullptr) {
      convert(dtype, slot, dtype, next.input, next.count, 1.0);
    } else if (former.data != nullptr && next.data == nullptr) {
      convert(dtype, former.data, dtype, slot, next.count, 1.0, binding_.unpack_stores);
    } else if (former.data != nullptr) {
      kolo::exchange(former.data, slot, next.input, next.count * element_bytes_,
                     binding_.unpack_stores);
    }
    first += next.count;
  }
}

/// An exchange whose contributions must be packed (see Binding::packs_contributions).
void HostRun::unpack_and_pack(const KernelPiece& piece) {
  const Step& step = *piece.step;
  std::byte* const slot = address(part(step.target, piece.first, piece.count));
  binding_.packer->unpack(step.mirrors[0].offset + piece.first, piece.count, slot,
                          binding_.unpack_stores);
  binding_.packer->pack(step.sources[1].offset + piece.first, piece.count, slot, Stores::kCached);
}

/// Whether all outputs of a sum are in tensors.
bool HostRun::is_result(const Step& sum) const {
  const auto is_in_tensor = [this](const Range& range) {
    return range.region == Region::kUser ||
           (range.region == Region::kExposedResult && !is_in_slot(range));
  };
  return is_in_tensor(sum.target) && std::ranges::all_of(sum.mirrors, is_in_tensor);
}

void HostRun::reduce(const KernelPiece& piece, Operands& operands) {
  const Step& step = *piece.step;
  const std::optional<Range> operand = tensor_operand(step);
  if (!operand) return reduce_tensor(step, piece.first, {.count = piece.count}, operands);
  const std::size_t end = piece.first + piece.count;
  const std::size_t longest =
      binding_.packs_contributions ? kPackedBytes / element_bytes_ : piece.count;
  for (std::size_t first = piece.first; first < end;) {
    const Packer::Piece tensor =
        binding_.packer->piece(operand->offset + first, std::min(longest, end - first));
    // Elements in a gap belong to no tensor on any rank, so they need no sum.
    if (tensor.input != nullptr) reduce_tensor(step, first, tensor, operands);
    first += tensor.count;
  }
}

void HostRun::reduce_tensor(const Step& step, std::size_t first, const Packer::Piece& tensor,
                            Operands& operands) {
  const std::size_t count = tensor.count;
  const auto output = [&](const Range& range) {
    return range.region == Region::kUser ? tensor.data : address(part(range, first, count));
  };
  const auto source_at = [&](const Range& range) -> const void* {
    if (range.region != Region::kInput) return output(range);
    if (!binding_.packs_contributions) return tensor.input;
    binding_.packer->pack(range.offset + first, count, operands.packed.get(), Stores::kCached);
    return operands.packed.get();
  };
  auto& outputs = operands.outputs;
  auto& sources = operands.sources;
  outputs.assign(1, output(step.target));
  for (const Range& mirror : step.mirrors) outputs.push_back(output(mirror));
  sources.clear();
  for (const Range& source : step.sources) sources.push_back(source_at(source));
  kolo::reduce(schedule_.layout.dtype, schedule_.layout.op, outputs, sources, count,
               step.finishes ? binding_.scale : 1.0, overflow_,
               is_result(step) ? binding_.sum_stores : Stores::kCached);
}

}  // namespace kolo
