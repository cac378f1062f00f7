#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// Identifies a proposal on which ranks agree. Either `hash` is the hash of a name and `round`
/// counts its uses, or `hash` is a `bucket_hash` and `round` is the bucket's iteration.
struct ProposalKey {
  std::uint64_t hash = 0;
  std::uint64_t round = 0;

  friend auto operator<=>(const ProposalKey&, const ProposalKey&) = default;
};

/// Hash of a name: 63 bits of XXH3.
std::uint64_t name_hash(std::string_view name);

/// The top bit, which is set in the hash of a bucket and clear in the hash of a name.
inline constexpr std::uint64_t kBucketHashBit = std::uint64_t{1} << 63;
constexpr std::uint64_t bucket_hash(BucketId bucket) { return kBucketHashBit | bucket; }
constexpr bool is_bucket_hash(std::uint64_t hash) { return (hash & kBucketHashBit) != 0; }
constexpr BucketId bucket_of(std::uint64_t hash) {
  return static_cast<BucketId>(hash & ~kBucketHashBit);
}

inline constexpr std::size_t kProposalKeyBytes = 16;
void write(ByteWriter& writer, const ProposalKey& key);
ProposalKey read_proposal_key(ByteReader& reader);

/// An object for which threads of the program wait. Proposals with the same waiting threads share
/// one Waitable, so that no thread is counted twice.
class Waitable {
 public:
  /// The number of threads that wait now. Threads: the coordinator's only.
  virtual int waiters() const = 0;
  /// Whether the program waits by other means, such as a descriptor. Threads: as for `waiters`.
  virtual bool is_watched() const { return false; }
  /// How a joined rank participates in the proposed operation, or empty if joined ranks cannot.
  /// Threads: the coordinator's only.
  virtual std::vector<std::byte> terms() const { return {}; }

 protected:
  ~Waitable() = default;
};

}  // namespace kolo
