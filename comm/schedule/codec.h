#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/base/check.h"
#include "comm/schedule/packer.h"

namespace kolo {

/// The elements of a bucket that a codec reads or writes. They have the bucket's dtype and are
/// contiguous, either in memory at `data` or in the bucket's order in `tensors`. Both are null for
/// `encode` and `decode` of a device bucket, which work on pairs in the codec's memory.
struct CodecElements {
  std::byte* data = nullptr;  ///< If null, the elements are [offset, offset + count) of `tensors`.
  Packer* tensors = nullptr;
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// The memory of payloads, in the order of the elements that they encode. Each span has the
/// payload's planned capacity.
using Payloads = std::span<const std::span<std::byte>>;

/// Converts a bucket's elements to payloads and back. Each member function implements one verb of
/// kCodec steps; steps call them in the order of declaration. The functions with a stream are for
/// device buckets: they enqueue work on elements in device memory and return. A payload's capacity
/// is planned in advance, so that schedules do not depend on the data. A payload begins with its
/// number of used bytes, and only used bytes are sent.
///
/// The verifier assumes that codecs meet these contracts. The codec chooses the order of elements
/// in adjacent payloads; all ranks must use the same order.
///
/// Threads: the executor's. After each function has run once, calls allocate nothing.
/// Errors:  KoloError(kInternal) for a payload that no correct peer sends.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Updates this rank's contribution in place for a step that sends it without encoding.
  virtual void fold(const CodecElements& elements) = 0;
  virtual void fold(Stream& /*stream*/, const CodecElements& /*elements*/) { refuse_device(); }
  /// Copies what this rank sends of its contribution to the codec's pinned memory, for `encode`.
  virtual void select(Stream& /*stream*/, const CodecElements& /*contribution*/) {
    refuse_device();
  }
  /// Encodes this rank's contribution.
  virtual void encode(const CodecElements& contribution, Payloads payloads) = 0;
  /// Sums the contributions of all ranks to the same elements. `sources` has one payload per
  /// contributing rank, in ascending order of ranks.
  virtual void merge(Payloads sources, Payloads sum) = 0;
  /// Encodes this rank's contribution for a second exchange, by the sums of the first. The second
  /// sums then go through `merge` too. Methods with one exchange do not implement it.
  virtual void refine(Payloads /*sums*/, const CodecElements& /*contribution*/,
                      Payloads /*payloads*/) {
    ensure(false, "this codec has one exchange");
  }
  /// Decodes `results` to `elements` and multiplies them by `scale`.
  virtual void decode(Payloads results, const CodecElements& elements, double scale) = 0;
  /// Writes what `decode` has left in the codec's pinned memory to `elements`.
  virtual void scatter(Stream& /*stream*/, const CodecElements& /*elements*/) { refuse_device(); }
  /// Reads the final elements without changing them.
  virtual void inspect(const CodecElements& finished) = 0;
  virtual void inspect(Stream& /*stream*/, const CodecElements& /*finished*/) { refuse_device(); }

 private:
  static void refuse_device() { ensure(false, "this codec is for buckets in host memory"); }
};

/// Returns the number of used bytes of a payload, which its first 8 bytes hold.
inline std::size_t used_payload_bytes(std::span<const std::byte> payload) {
  std::uint64_t used = 0;
  ensure(payload.size() >= sizeof(used), "a payload has no room for its length");
  std::memcpy(&used, payload.data(), sizeof(used));
  ensure(sizeof(used) <= used && used <= payload.size(), "a payload is longer than planned");
  return used;
}

}  // namespace kolo
