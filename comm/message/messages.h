#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/coordinator/coordinator.h"
#include "comm/message/message.h"
#include "comm/message/message_matching.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Point-to-point messages of this rank. The sender offers each message in a control frame, the
/// receiver matches offers with receives (`MessageMatching`), and the elements travel in one of
/// three ways:
///
///   kInOffer      up to kMostInOffer:      offer with elements ──►
///   kBehindOffer  to other nodes, up to    offer ──► data message ──►
///                 kMostBehindOffer:
///   kOnDemand     otherwise:               offer ──►  ◄── take  data message ──►
///
/// The first two are unsolicited, so their senders need not wait for the receiver. Per pair of
/// ranks at most kRoom bytes of them are unreceived; further messages travel on demand, so
/// unsolicited data at a rank is bounded.
///
/// A grouped message has several tensors, which the offer lists. Unless they are contiguous, its
/// elements are packed into a temporary buffer during the transfer.
///
/// A message that does not fit its receive fails on both sides and affects nothing else. If the
/// sender's call has already returned, as for an unsolicited message, the sender logs the error.
///
/// A rank that has joined sends nothing until all ranks have joined, and receives only messages
/// that it had asked for before; for a rank that has closed this is permanent. A call that only
/// such ranks could complete fails with an error, as soon as the program waits for it or those
/// ranks have closed; messages that they sent before are received.
///
/// Threads: the engine's; any for `network_bytes`.
/// Errors:  only those of the transport and lack of memory, which end the job.
class Messages final : public MessageFrames {
 public:
  static constexpr std::size_t kMostInOffer = std::size_t{4} << 10;
  static constexpr std::size_t kMostBehindOffer = std::size_t{256} << 10;
  static constexpr std::size_t kRoom = std::size_t{1} << 20;

  /// `transport` outlives it; `bucket` is the bucket number in the tags of its data messages,
  /// `group` the group that errors name.
  Messages(Transport& transport, BucketId bucket, std::string group = {})
      : transport_(transport), bucket_(bucket), group_(std::move(group)) {}

  /// Before: the caller keeps the message until it is answered, and has checked its peer and
  /// buffer.
  void submit(const std::shared_ptr<Message>& message);
  /// Fails this receive with `error`, unless a message has already come for it.
  void withdraw(const std::shared_ptr<Message>& receive, const Error& error);
  bool receive(int peer, const Frame& frame) override;
  /// Answers messages whose data has arrived or left. Returns whether there was one.
  bool poll();

  /// Whether a call waits for another rank or for the transport.
  bool waiting() const {
    return matching_.has_receives() || unanswered_ > 0 || !transfers_.empty();
  }
  /// Asks ranks that have joined or closed whether they will still complete calls of this rank, and
  /// fails the calls that they will not. Joined ranks vote on `join`; closed ranks stay closed.
  /// This rank has not joined, but may have closed. Call it repeatedly. Before: `joined`, which
  /// includes the closed ranks, is not empty.
  void end_hopeless(const std::set<int>& joined, const std::set<int>& closed,
                    const ProposalKey& join);

  /// Appends the ranks that pending calls wait for.
  void append_awaited_peers(std::vector<int>& peers) const;
  /// "a receive from rank 1 with tag 5, ...", or "no message".
  std::string describe_wait() const;

  /// For the agreed end of the job: an error about messages to this rank that were never received,
  /// if any. From now on the transport does not report them.
  std::optional<Error> take_strays();

  /// Fails every call after the job has failed, except calls whose buffers the transport still
  /// uses.
  void fail_all(const Error& error) noexcept;
  /// Fails the remaining calls after the transport has ended. Returns whether the transport has
  /// released all buffers.
  bool fail_transfers(const Error& error) noexcept;

  /// Bytes of elements sent to other nodes.
  std::uint64_t network_bytes() const { return network_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Unanswered {
    std::uint64_t number = 0;
    std::shared_ptr<Message> message;
    std::optional<ProposalKey> recalled = {};  // the join for which it was recalled
  };
  /// What this rank remembers about messages to and from one rank (which may be itself).
  struct Peer {
    std::uint64_t next_number = 0;      // number of the next message to it
    std::size_t room = kRoom;           // bytes that may be sent there unsolicited
    std::size_t owed = 0;               // bytes of its unsolicited messages that have been received
                                        // here, which it does not know yet
    std::deque<Unanswered> unanswered;  // sends on demand, by number
    std::optional<ProposalKey> asked = {};  // the last join for which it was asked whether it still
                                            // sends
    std::optional<ProposalKey> silent =
        {};  // the last join for which it answered that it sends nothing
  };
  /// A data message in flight.
  struct Transfer {
    std::shared_ptr<Message> message;
    std::uint64_t number = 0;
    std::optional<Error> refusal = {};  // for a send
  };

  static std::string describe(int source, const Offer& offer);
  void send(const std::shared_ptr<Message>& message);
  Delivery delivery(const Peer& to, const Message& message) const;
  void start_sending(Message& message, std::uint64_t number);
  static std::span<const std::byte> outgoing(Message& message);
  static std::span<std::byte> incoming(Message& receive, std::size_t bytes);
  static void answer(Message& message);
  void start_receiving(int source, std::uint64_t number, std::span<std::byte> data,
                       Message& message);
  void join(int source, const Offer& offer, std::span<const std::byte> payload,
            const std::shared_ptr<Message>& receive);
  void refuse(int source, const Offer& offer, Message& receive);
  bool take_offer(int peer, const Frame& frame);
  bool taken(int peer, std::uint64_t number);
  void refused(int peer, std::uint64_t number, const Error& error);
  bool make_room(int peer, std::uint64_t bytes);
  void recall(const std::set<int>& joined, const std::set<int>& closed, const ProposalKey& join);
  bool is_silent(int peer, const ProposalKey& join);
  void recalled(int peer, const Frame& frame);
  Error hopeless(const Message& receive, const std::set<int>& closed) const;
  void owe(int peer, std::size_t bytes);
  std::shared_ptr<Message> take_unanswered(Peer& peer, std::uint64_t number);
  void give(int peer, const Frame& frame);
  void count_sent(int peer, std::size_t bytes);

  Transport& transport_;
  const BucketId bucket_;
  const std::string group_;
  MessageMatching matching_;
  std::unordered_map<int, Peer> peers_;
  std::size_t unanswered_ = 0;  // total over all peers
  std::vector<Transfer> transfers_;
  std::shared_ptr<Message> in_hand_;  // being joined with its offer, in no list meanwhile
  bool has_closed_ = false;           // whether this rank has closed
  std::vector<std::byte> outgoing_;
  std::atomic<std::uint64_t> network_bytes_{0};
};

}  // namespace kolo
