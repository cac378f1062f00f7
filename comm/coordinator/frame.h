#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/error.h"
#include "comm/coordinator/last_act.h"
#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// Something that ranks agree on: the `round`-th use of `key`. A key is the hash of a name while it
/// is negotiated, or `bucket_key` with the iteration as round once buckets exist.
struct Topic {
  std::uint64_t key = 0;
  std::uint64_t round = 0;

  friend auto operator<=>(const Topic&, const Topic&) = default;
};

/// Key of a name: 63 bits of XXH3.
std::uint64_t name_key(std::string_view name);

/// Key of a bucket's readiness: the top bit is set, which no name's is.
inline constexpr std::uint64_t kBucketKeyBit = std::uint64_t{1} << 63;
constexpr std::uint64_t bucket_key(BucketId bucket) { return kBucketKeyBit | bucket; }
constexpr bool is_bucket_key(std::uint64_t key) { return (key & kBucketKeyBit) != 0; }
constexpr BucketId bucket_of(std::uint64_t key) {
  return static_cast<BucketId>(key & ~kBucketKeyBit);
}

enum class FrameKind : std::uint8_t {
  kPropose,  ///< Up: my whole subtree proposes the topic, with the least and greatest value.
  kAccept,   ///< Down: all ranks proposed the topic, with the least and greatest value.
  kReject,   ///< Down: `topics` fail with `error`.
  kArrive,   ///< Up, between leaders: my subtree is ready for the topic.
  kRelease,  ///< Down, between leaders: all ranks are ready for the topic.
  kStalled,  ///< Any rank to the root: the topic makes no progress here.
  kQuery,    ///< Root to any rank: report what is pending at your rank.
  kReport,   ///< Any rank to the root: the answer.
  kWarn,     ///< Root to any rank: log `error.what` as a warning.
  kPing,     ///< Any to any: are you there?
  kPong,     ///< The answer, also to kStalled.
  kFail,     ///< Any to any: the job has failed with `error`.
  kOffer,    ///< Sender to receiver: a message of `offer`, with its elements if it is small.
  kTake,     ///< Receiver to sender: it has a buffer for that message, which is to come now.
  kRefuse,   ///< Receiver to sender: that message fails with `error` on both.
  kRoom,     ///< Receiver to sender: there is room for more messages that come unasked.
};

/// One entry of a rank's report.
struct PendingTopic {
  Topic topic;
  bool blocking = false;  ///< A thread of the rank waits for it.
  std::string text = {};  ///< Description, one line per tensor.
  /// Uses of one name are matched in order, so two ranks that have different topics of one name
  /// pending disagree. 0: the topic has no such name.
  std::uint64_t name = 0;
  /// The rank has submitted the topic and it has ended there: it is not pending.
  bool past = false;
};

/// How the elements of a message between two ranks travel.
enum class Delivery : std::uint8_t {
  kInOffer,      ///< In the frame that offers it.
  kBehindOffer,  ///< In a data message that follows unasked.
  kOnDemand,     ///< In a data message that follows when the receiver takes the offer.
};

/// A message that its sender offers.
struct Offer {
  std::uint64_t tag = 0;     ///< The caller's.
  std::uint64_t number = 0;  ///< Counts the messages from this sender to this receiver.
  std::uint64_t count = 0;   ///< Elements.
  DType dtype = DType::kFloat32;
  Delivery delivery = Delivery::kInOffer;

  friend bool operator==(const Offer&, const Offer&) = default;
};

/// A message of the coordinator, or one about messages between two ranks; fields that its kind does
/// not use are empty.
struct Frame {
  FrameKind kind = FrameKind::kPing;
  Topic topic = {};  ///< kQuery: the one to describe in full.
  /// kPropose, kAccept: a value. kQuery, kReport: the query's number. kTake, kRefuse: the
  /// message's.
  std::uint64_t least = 0;
  /// kPropose, kAccept: a value. kTake, kRefuse, kRoom: bytes that came unasked and have since been
  /// received.
  std::uint64_t greatest = 0;
  std::vector<Topic> topics{};  ///< kReject. kQuery: topics that may have ended at some ranks.
  std::vector<PendingTopic> pending{};  ///< kReport.
  bool all_wait =
      false;       ///< kReport: every thread that uses the runtime waits for a pending topic.
  LastAct last{};  ///< kReport: what the rank did last.
  Error error{};   ///< kReject, kWarn, kFail, kRefuse.
  Offer offer{};   ///< kOffer.
  /// kOffer: the elements, if the offer carries them. In a decoded frame they refer to its bytes.
  std::span<const std::byte> payload{};
};

/// Bytes of a frame: kind, then the fields that it uses, little-endian, counted lists and strings.
void encode(const Frame& frame, std::vector<std::byte>& bytes);

/// The inverse. Empty if the bytes are not a frame: every length is checked against what is left,
/// so nothing is read or allocated beyond the input.
std::optional<Frame> decode(std::span<const std::byte> bytes);

}  // namespace kolo
