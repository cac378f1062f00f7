#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/base/check.h"
#include "comm/schedule/packer.h"

namespace kolo {

/// Elements of a bucket's dtype that a codec reads or writes, uncoded: side by side in memory, or
/// in the caller's tensors.
struct CodecElements {
  std::byte* data = nullptr;  ///< Null: they are elements [offset, offset + count) of `tensors`.
  Packer* tensors = nullptr;
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// Memory of payloads, each as large as planned, in the order of the elements they stand for.
using Payloads = std::span<const std::span<std::byte>>;

/// Turns a bucket's elements into payloads and back: the verbs of kCodec steps, which see all of
/// them in this order. Payloads have a planned capacity, so that schedules do not change with the
/// data; they begin with the number of bytes in use, and only these travel.
///
/// The verifier takes the promises of the verbs for granted. In which order elements stand in
/// neighbouring payloads is the codec's choice, if all ranks choose alike.
///
/// Threads: the executor's. Nothing allocates once every verb has run.
/// Errors:  KoloError(kInternal) for a payload that no peer can have sent.
class Codec {
 public:
  virtual ~Codec() = default;

  /// This rank's contribution, in place, for a bucket that continues without coding.
  virtual void fold(const CodecElements& elements) = 0;
  /// This rank's contribution as payloads.
  virtual void encode(const CodecElements& contribution, Payloads payloads) = 0;
  /// The sum of contributions to the same elements, one source for each rank that takes part, in
  /// ascending order.
  virtual void merge(Payloads sources, Payloads sum) = 0;
  /// Results as elements, multiplied by `scale`.
  virtual void decode(Payloads results, const CodecElements& elements, double scale) = 0;
  /// Reads the finished elements, which stay as they are.
  virtual void inspect(const CodecElements& finished) = 0;
};

/// How many bytes of a payload are in use; they stand at its front.
inline std::size_t used_payload_bytes(std::span<const std::byte> payload) {
  std::uint64_t used = 0;
  ensure(payload.size() >= sizeof(used), "a payload has no room for its length");
  std::memcpy(&used, payload.data(), sizeof(used));
  ensure(sizeof(used) <= used && used <= payload.size(), "a payload is longer than planned");
  return used;
}

/// Several payloads as one message: the bytes in use in each, one after the other, behind the
/// length of all.
///
///     | used bytes of the whole | payload 0 | payload 1 | ...          each to a multiple of 8
///
/// Threads: pure; any.

/// The bytes of a joined payload: the header and, for each part, `joined_bytes` of its capacity.
inline constexpr std::size_t kJoinedHeaderBytes = 8;
std::size_t joined_bytes(std::size_t part_capacity);

/// Before: `whole` has kJoinedHeaderBytes and the `joined_bytes` of every part.
void join_payloads(Payloads parts, std::span<std::byte> whole);
/// The reverse. Errors: KoloError(kInternal) unless `whole` consists of as many payloads, none
/// larger than planned.
void part_payloads(std::span<const std::byte> whole, Payloads parts);

}  // namespace kolo
