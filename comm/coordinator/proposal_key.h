#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// Something that ranks agree on: the `round`-th use of `hash`. During negotiation the hash is the
/// hash of a name; once buckets exist it is a `bucket_hash`, with the iteration as round.
struct ProposalKey {
  std::uint64_t hash = 0;
  std::uint64_t round = 0;

  friend auto operator<=>(const ProposalKey&, const ProposalKey&) = default;
};

/// Hash of a name: 63 bits of XXH3.
std::uint64_t name_hash(std::string_view name);

/// Marks the hash of a bucket's readiness: the top bit is set, unlike in the hash of a name.
inline constexpr std::uint64_t kBucketHashBit = std::uint64_t{1} << 63;
constexpr std::uint64_t bucket_hash(BucketId bucket) { return kBucketHashBit | bucket; }
constexpr bool is_bucket_hash(std::uint64_t hash) { return (hash & kBucketHashBit) != 0; }
constexpr BucketId bucket_of(std::uint64_t hash) {
  return static_cast<BucketId>(hash & ~kBucketHashBit);
}

inline constexpr std::size_t kProposalKeyBytes = 16;
void write(ByteWriter& writer, const ProposalKey& key);
ProposalKey read_proposal_key(ByteReader& reader);

/// Something that threads of the program wait for. Proposals that concern the same waits share one
/// object, so that no thread is counted twice.
class Waitable {
 public:
  /// How many threads wait for it now. Threads: the coordinator's.
  virtual int waiters() const = 0;
  /// Whether the program waits for it by other means, such as a descriptor, so that it must not
  /// stay undecided for ever. Threads: as above.
  virtual bool is_watched() const { return false; }
  /// How a joined rank takes part in the proposed operation; empty: no rank can. Threads: as above.
  virtual std::vector<std::byte> terms() const { return {}; }

 protected:
  ~Waitable() = default;
};

}  // namespace kolo
