#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/base/check.h"
#include "comm/schedule/packer.h"

namespace kolo {

/// Uncoded elements of a bucket's dtype that a codec reads or writes, contiguous in memory or in
/// the caller's tensors.
struct CodecElements {
  std::byte* data = nullptr;  ///< Null: elements [offset, offset + count) of `tensors`.
  Packer* tensors = nullptr;
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// Memory of payloads, each of its planned size, in the order of the elements that they encode.
using Payloads = std::span<const std::span<std::byte>>;

/// Converts a bucket's elements to payloads and back. Its functions are the verbs of kCodec steps,
/// which run in this order. Payloads have a planned capacity, so that schedules do not depend on
/// the data; they begin with the number of used bytes, and only used bytes are sent.
///
/// The verifier trusts the contracts of these functions. The order of elements in neighbouring
/// payloads is up to the codec, but must be equal on all ranks.
///
/// Threads: the executor's. Nothing allocates once every function has run.
/// Errors:  KoloError(kInternal) for a payload that no peer can have sent.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Takes this rank's contribution, in place, for a bucket that continues without coding.
  virtual void fold(const CodecElements& elements) = 0;
  /// Encodes this rank's contribution.
  virtual void encode(const CodecElements& contribution, Payloads payloads) = 0;
  /// Sums contributions to the same elements, one source per participating rank, in ascending rank
  /// order.
  virtual void merge(Payloads sources, Payloads sum) = 0;
  /// Decodes results to elements, multiplied by `scale`.
  virtual void decode(Payloads results, const CodecElements& elements, double scale) = 0;
  /// Reads the finished elements without changing them.
  virtual void inspect(const CodecElements& finished) = 0;
};

/// Number of used bytes of a payload, which come first in it.
inline std::size_t used_payload_bytes(std::span<const std::byte> payload) {
  std::uint64_t used = 0;
  ensure(payload.size() >= sizeof(used), "a payload has no room for its length");
  std::memcpy(&used, payload.data(), sizeof(used));
  ensure(sizeof(used) <= used && used <= payload.size(), "a payload is longer than planned");
  return used;
}

/// Several payloads joined into one message: the total length, then the used bytes of each payload.
///
///     | used bytes of the whole | payload 0 | payload 1 | ...          each to a multiple of 8
///
/// Threads: pure; any.

/// The bytes of a joined payload: the header and, for each part, `joined_bytes` of its capacity.
inline constexpr std::size_t kJoinedHeaderBytes = 8;
std::size_t joined_bytes(std::size_t part_capacity);

/// Before: `whole` has kJoinedHeaderBytes and the `joined_bytes` of every part.
void join_payloads(Payloads parts, std::span<std::byte> whole);
/// Splits a joined payload. Errors: KoloError(kInternal) unless `whole` has this number of
/// payloads, none larger than planned.
void part_payloads(std::span<const std::byte> whole, Payloads parts);

}  // namespace kolo
