#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/error.h"
#include "comm/coordinator/aggregated_report.h"
#include "comm/coordinator/proposal_key.h"

namespace kolo {

enum class FrameKind : std::uint8_t {
  kPropose,  ///< Up: the subtree makes the proposal, with the least and greatest value.
  kAccept,   ///< Down: the proposal is accepted, with the least and greatest value of all ranks.
  kReject,   ///< Down: the proposals `keys` fail with `error`.
  kArrive,   ///< Up, between leaders: all ranks of the subtree are ready for the bucket.
  kRelease,  ///< Down, between leaders: all ranks are ready for the bucket.
  kStalled,  ///< Up: the proposal makes no progress in the sender's subtree.
  kQuery,    ///< Down: asks for the report of the receiver's subtree.
  kReport,   ///< Up: the report of the sender's subtree; answers kQuery.
  kWarn,     ///< Down: log `error.what` as a warning.
  kPing,     ///< Any to any: asks for a sign of life.
  kPong,     ///< Answers kPing, kStalled, and kQuery before a report that may take long.
  kFail,     ///< Along the tree and around a lost rank: the job has failed with `error`.
  kOffer,    ///< Sender to receiver: offers the message `offer`, with its elements if it is small.
  kTake,     ///< Receiver to sender: asks for the elements of the message.
  kRefuse,   ///< Receiver to sender: the message fails with `error` on both ranks.
  kRoom,     ///< Receiver to sender: there is room for more unsolicited messages.
  kRecall,   ///< Sender to a joined receiver: asks it to refuse the message unless a receive
             ///< matches.
  kAsk,      ///< Receiver to a rank that has joined: asks whether it will send more messages.
             ///< Closing sender to a receiver: asks whether all offers have reached it.
  kNothing,  ///< Answers kAsk, after all offers: no more messages until all ranks have joined.
  kJoined,   ///< Along the tree to all: rank `least` has joined.
  kInvite,   ///< Along the tree to all: ranks that have joined are invited to the proposals `keys`.
  kDecline,  ///< Up: a rank that has joined declines the proposal, which fails with `error`.
  kClosed,   ///< Along the tree to all: rank `least` has closed.
};

/// How the elements of a message are sent.
enum class Delivery : std::uint8_t {
  kInOffer,      ///< In the offer.
  kBehindOffer,  ///< In a data message that follows the offer at once.
  kOnDemand,     ///< In a data message that the sender sends after the receiver's kTake.
};

/// One tensor of a grouped message.
struct OfferedTensor {
  std::uint64_t count = 0;  ///< Number of elements.
  DType dtype = DType::kFloat32;

  friend bool operator==(const OfferedTensor&, const OfferedTensor&) = default;
};

/// Describes a point-to-point message that its sender offers.
struct Offer {
  std::uint64_t tag = 0;     ///< Only receives with an equal tag match.
  std::uint64_t number = 0;  ///< Sequence number of the message for this pair of ranks.
  std::uint64_t count = 0;   ///< Number of elements of the first tensor.
  DType dtype = DType::kFloat32;
  Delivery delivery = Delivery::kInOffer;
  std::vector<OfferedTensor> more = {};  ///< The other tensors of a grouped message.

  friend bool operator==(const Offer&, const Offer&) = default;
};

/// A control frame: of the coordinator, or about a point-to-point message. Fields that its kind
/// does not use are empty.
struct Frame {
  FrameKind kind = FrameKind::kPing;
  ProposalKey key = {};  ///< kQuery: the proposal to describe in full. kRecall, kAsk, kNothing: key
                         ///< of the join vote. Other kinds: the proposal.
  /// kPropose, kAccept: the least value. kQuery, kReport: number of the query. kTake, kRefuse,
  /// kRecall: number of the message. kJoined, kClosed: a rank.
  std::uint64_t least = 0;
  /// kPropose, kAccept: the greatest value. kTake, kRefuse, kRoom: bytes of unsolicited messages
  /// received since the last such frame. kClosed: number of the attempt to close.
  std::uint64_t greatest = 0;
  /// kReject, kInvite: the proposals. kQuery: proposals that may have ended on some ranks.
  std::vector<ProposalKey> keys{};
  AggregatedReport report{};  ///< kReport: the report.
  Error error{};              ///< kReject, kWarn, kFail, kRefuse, kDecline: the error.
  Offer offer{};              ///< kOffer: the offer.
  /// kOffer: the elements, if the offer carries them. In a decoded frame the span refers to the
  /// encoded bytes.
  std::span<const std::byte> payload{};
  std::string text{};              ///< kInvite: `Invitation::text`, if `keys` has one entry.
  std::vector<std::byte> terms{};  ///< kInvite: `Invitation::terms`.
};

/// A frame and its destination rank.
struct OutgoingFrame {
  int peer;
  Frame frame;
};

/// Encodes a frame: its kind, then the fields that this kind uses, little-endian, with counted
/// lists and strings.
void encode(const Frame& frame, std::vector<std::byte>& bytes);

/// Decodes a frame. Returns an empty value if the bytes are malformed. Checks every length, so
/// nothing is read or allocated beyond the input.
std::optional<Frame> decode(std::span<const std::byte> bytes);

}  // namespace kolo
