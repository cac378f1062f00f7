#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// Something that ranks agree on: the `round`-th use of `key`. During negotiation the key is the
/// hash of a name; once buckets exist it is a `bucket_key`, with the iteration as round.
struct Topic {
  std::uint64_t key = 0;
  std::uint64_t round = 0;

  friend auto operator<=>(const Topic&, const Topic&) = default;
};

/// Key of a name: 63 bits of XXH3.
std::uint64_t name_key(std::string_view name);

/// Marks the key of a bucket's readiness: the top bit is set, unlike in the key of a name.
inline constexpr std::uint64_t kBucketKeyBit = std::uint64_t{1} << 63;
constexpr std::uint64_t bucket_key(BucketId bucket) { return kBucketKeyBit | bucket; }
constexpr bool is_bucket_key(std::uint64_t key) { return (key & kBucketKeyBit) != 0; }
constexpr BucketId bucket_of(std::uint64_t key) {
  return static_cast<BucketId>(key & ~kBucketKeyBit);
}

inline constexpr std::size_t kTopicBytes = 16;
void write(ByteWriter& writer, const Topic& topic);
Topic read_topic(ByteReader& reader);

/// Something that threads of the program wait for. Topics that concern the same waits share one
/// object, so that no thread is counted twice.
class Waited {
 public:
  /// How many threads wait for it now. Threads: the coordinator's.
  virtual int waiters() const = 0;
  /// Whether the program waits for it by other means, such as a descriptor, so that it must not
  /// stay undecided for ever. Threads: as above.
  virtual bool is_watched() const { return false; }
  /// How a joined rank takes part in the proposed operation; empty: no rank can. Threads: as above.
  virtual std::vector<std::byte> terms() const { return {}; }

 protected:
  ~Waited() = default;
};

}  // namespace kolo
