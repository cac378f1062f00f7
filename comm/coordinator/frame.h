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
  kPropose,  ///< Up: the subtree proposes the proposal, with the least and greatest value.
  kAccept,   ///< Down: all ranks proposed the proposal, with the least and greatest value.
  kReject,   ///< Down: `keys` fail with `error`.
  kArrive,   ///< Up, between leaders: the subtree is ready for the proposal.
  kRelease,  ///< Down, between leaders: all ranks are ready for the proposal.
  kStalled,  ///< Up: the proposal makes no progress in my subtree.
  kQuery,    ///< Down: report what is pending in your subtree.
  kReport,   ///< Up: the answer.
  kWarn,     ///< Down: log `error.what` as a warning.
  kPing,     ///< Any to any: asks for a sign of life.
  kPong,     ///< The answer, also to kStalled, and to kQuery from a rank whose report takes long.
  kFail,     ///< Up and down, and around a lost rank: the job has failed with `error`.
  kOffer,    ///< Sender to receiver: a message of `offer`, with its elements if it is small.
  kTake,     ///< Receiver to sender: it has a buffer for that message; send it now.
  kRefuse,   ///< Receiver to sender: that message fails with `error` on both.
  kRoom,     ///< Receiver to sender: there is room for more unsolicited messages.
  kRecall,   ///< Sender to a receiver that has joined: that message must not wait for a receive.
  kAsk,      ///< Receiver to a rank that has joined: does it still send anything?
  kNothing,  ///< The answer, behind all its offers: it sends nothing until all have joined.
  kJoined,   ///< Along the tree to all: rank `least` has run out of data.
  kInvite,   ///< Along the tree to all: ranks that have joined shall take part in `keys`.
  kDecline,  ///< Up: a rank that has joined has no part in the proposal, which fails with `error`.
  kClosed,   ///< Along the tree to all: rank `least` begins nothing new, and waits for the end.
};

/// How the elements of a message between two ranks travel.
enum class Delivery : std::uint8_t {
  kInOffer,      ///< In the frame that offers it.
  kBehindOffer,  ///< In a data message that follows unsolicited.
  kOnDemand,     ///< In a data message that follows when the receiver takes the offer.
};

/// One tensor of a grouped message.
struct OfferedTensor {
  std::uint64_t count = 0;  ///< Elements.
  DType dtype = DType::kFloat32;

  friend bool operator==(const OfferedTensor&, const OfferedTensor&) = default;
};

/// A message that its sender offers.
struct Offer {
  std::uint64_t tag = 0;     ///< Index of the message from this sender to this receiver.
  std::uint64_t number = 0;  ///< Counts the messages from this sender to this receiver.
  std::uint64_t count = 0;   ///< Elements; for a grouped message, elements of its first tensor.
  DType dtype = DType::kFloat32;
  Delivery delivery = Delivery::kInOffer;
  std::vector<OfferedTensor> more = {};  ///< The other tensors of a grouped message.

  friend bool operator==(const Offer&, const Offer&) = default;
};

/// A message of the coordinator, or one about messages between two ranks. Fields that its kind does
/// not use are empty.
struct Frame {
  FrameKind kind = FrameKind::kPing;
  ProposalKey key =
      {};  ///< kQuery: the proposal to describe in full. kRecall, kAsk, kNothing: the join.
  /// kPropose, kAccept: a value. kQuery, kReport: number of the query. kTake, kRefuse, kRecall:
  /// number of the message. kJoined, kClosed: a rank.
  std::uint64_t least = 0;
  /// kPropose, kAccept: a value. kTake, kRefuse, kRoom: bytes of unsolicited messages received
  /// since the last such frame. kClosed: number of the attempt of all ranks to close.
  std::uint64_t greatest = 0;
  /// kReject, kInvite: the proposals. kQuery: proposals that may have ended at some ranks.
  std::vector<ProposalKey> keys{};
  AggregatedReport report{};  ///< kReport.
  Error error{};              ///< kReject, kWarn, kFail, kRefuse, kDecline.
  Offer offer{};              ///< kOffer.
  /// kOffer: the elements, if the offer carries them. In a decoded frame they refer to its bytes.
  std::span<const std::byte> payload{};
  std::string text{};              ///< kInvite: as `Invitation::text`, if there is one proposal.
  std::vector<std::byte> terms{};  ///< kInvite: as `Invitation::terms`.
};

/// A frame and its destination rank.
struct OutgoingFrame {
  int peer;
  Frame frame;
};

/// Encodes a frame: its kind, then the fields that it uses, little-endian, with counted lists and
/// strings.
void encode(const Frame& frame, std::vector<std::byte>& bytes);

/// Decodes a frame. Empty if the bytes are not a frame: every length is checked against the
/// remaining bytes, so nothing is read or allocated beyond the input.
std::optional<Frame> decode(std::span<const std::byte> bytes);

}  // namespace kolo
