#pragma once

#include <cstdint>

namespace kolo {

/// The label of a data message. It matches exactly one send to each receive, and distinguishes
/// messages of different buckets and iterations.
///
///   bits  63..48  47..32  31..20     19..0
///         source  bucket  iteration  ordinal
///
/// `source` is the sending rank. `ordinal` numbers the messages from that rank to the receiver in
/// one run of a schedule. For messages between two ranks, `iteration` and `ordinal` together are
/// their number. Fields wrap, but messages in flight never have equal tags: a schedule has
/// at most `network_window` bytes in flight, far fewer than 2^20 chunks, however many bytes it
/// sends in total. (Without that limit, the first 2^20 messages to a peer are distinct.) The id of
/// a bucket may be reused, because its iterations continue after the last iteration of the previous
/// bucket with that id. The job uses the lowest ids, groups the others (see `GroupPlace`).
struct Tag {
  std::uint32_t source = 0;
  std::uint32_t bucket = 0;
  std::uint32_t iteration = 0;
  std::uint32_t ordinal = 0;

  friend bool operator==(const Tag&, const Tag&) = default;
};

inline constexpr int kTagOrdinalBits = 20;
inline constexpr int kTagIterationBits = 12;
inline constexpr int kTagBucketBits = 16;
inline constexpr int kTagSourceBits = 16;

constexpr std::uint64_t pack(const Tag& tag) {
  const auto field = [](std::uint32_t value, int bits) {
    return static_cast<std::uint64_t>(value & ((std::uint32_t{1} << bits) - 1));
  };
  std::uint64_t packed = field(tag.source, kTagSourceBits);
  packed = (packed << kTagBucketBits) | field(tag.bucket, kTagBucketBits);
  packed = (packed << kTagIterationBits) | field(tag.iteration, kTagIterationBits);
  packed = (packed << kTagOrdinalBits) | field(tag.ordinal, kTagOrdinalBits);
  return packed;
}

constexpr Tag unpack(std::uint64_t packed) {
  const auto take = [&packed](int bits) {
    const std::uint64_t field = packed & ((std::uint64_t{1} << bits) - 1);
    packed >>= bits;
    return static_cast<std::uint32_t>(field);
  };
  Tag tag;
  tag.ordinal = take(kTagOrdinalBits);
  tag.iteration = take(kTagIterationBits);
  tag.bucket = take(kTagBucketBits);
  tag.source = take(kTagSourceBits);
  return tag;
}

}  // namespace kolo
