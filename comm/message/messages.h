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

/// Point-to-point messages of this rank. The sender offers each message in a control frame, and the
/// receiver matches offers with receives (`MessageMatching`). There are three protocols for the
/// elements (`Delivery`):
///
///   kInOffer      up to kMostInOffer:      offer with elements ──►
///   kBehindOffer  to other nodes, up to    offer ──► data message ──►
///                 kMostBehindOffer:
///   kOnDemand     otherwise:               offer ──►  ◄── take  data message ──►
///
/// With the first two, data is unsolicited: the sender does not wait for the receiver. For each
/// pair of ranks, at most kRoom bytes of unsolicited data may be unreceived; others use kOnDemand.
///
/// A grouped message has several tensors, which the offer lists. If they are not contiguous, their
/// elements are packed into a temporary buffer during the transfer.
///
/// A message that does not fit its receive fails on both ranks and affects nothing else. If the
/// send has already completed, the sender logs the error.
///
/// A rank that has joined sends no messages until all ranks have joined, and receives only messages
/// for receives posted before. A rank that has closed never sends again. A call that only such
/// ranks could complete fails once the program waits for it or these ranks have closed. Messages
/// that they sent before are received.
///
/// Threads: the engine's only; any for `network_bytes`.
/// Errors:  those of the transport and std::bad_alloc, which end the job.
class Messages final : public MessageFrames {
 public:
  static constexpr std::size_t kMostInOffer = std::size_t{4} << 10;
  static constexpr std::size_t kMostBehindOffer = std::size_t{256} << 10;
  static constexpr std::size_t kRoom = std::size_t{1} << 20;

  /// `transport` must outlive this object. `bucket` is the bucket number in the tags of data
  /// messages, `group` the group named in errors.
  Messages(Transport& transport, BucketId bucket, std::string group = {})
      : transport_(transport), bucket_(bucket), group_(std::move(group)) {}

  /// Starts a send or receive. Before: the caller has checked the message's peer and buffers.
  void submit(const std::shared_ptr<Message>& message);
  /// Fails this receive with `error`, unless an offer has already matched it.
  void withdraw(const std::shared_ptr<Message>& receive, const Error& error);
  bool receive(int peer, const Frame& frame) override;
  /// Completes messages whose data transfer is complete. Returns whether there were any.
  bool poll();

  /// Whether a call waits for another rank or for the transport.
  bool waiting() const {
    return matching_.has_receives() || unanswered_ > 0 || !transfers_.empty() ||
           !unconfirmed_.empty();
  }
  /// Fails calls of this rank that only joined or closed ranks could complete. It must ask these
  /// ranks first, so call it repeatedly while there are any. `joined` includes the ranks in
  /// `closed`; `join` is the key of the vote of the joined ranks. Before: `joined` is not empty,
  /// and this rank has not joined (but may have closed).
  void end_hopeless(const std::set<int>& joined, const std::set<int>& closed,
                    const ProposalKey& join);

  /// Asks the ranks of other nodes whether all offers of this rank have reached them. `waiting`
  /// returns true until they have. `close` is the key of the vote that closes this rank. Before:
  /// this rank sends no more messages.
  void confirm_offers(const ProposalKey& close);

  /// Appends the ranks for which pending calls wait.
  void append_awaited_peers(std::vector<int>& peers) const;
  /// Describes pending calls: "a receive from rank 1 with tag 5, ...", or "no message".
  std::string describe_wait() const;

  /// Returns an error about messages to this rank that were never received, if any. Called at the
  /// agreed end of the job or group.
  std::optional<Error> take_strays();

  /// After the job has ended or failed: fails all calls except those whose buffers the transport
  /// still uses. Afterwards the transport does not report messages that were never received.
  void fail_all(const Error& error);
  /// Cancels transfers in progress, and fails those whose buffers the transport has released.
  /// Returns whether these are all. Called after `fail_all`, repeatedly.
  bool let_go(const Error& error) noexcept;
  /// Fails all transfers. Called after `fail_all`, when the transport has ended.
  void fail_transfers(const Error& error) noexcept;

  /// Bytes of elements sent to other nodes so far.
  std::uint64_t network_bytes() const { return network_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Unanswered {
    std::uint64_t number = 0;
    std::shared_ptr<Message> message;
    std::optional<ProposalKey> recalled = {};  // the join vote for which it was recalled
  };
  /// State of the messages to and from one rank, possibly this rank itself.
  struct Peer {
    std::uint64_t next_number = 0;           // sequence number of the next message to the peer
    std::size_t room = kRoom;                // bytes that may be sent to the peer unsolicited
    std::size_t owed = 0;                    // unsolicited bytes received and not reported
    std::deque<Unanswered> unanswered;       // sends on demand that wait for kTake, by number
    std::optional<ProposalKey> asked = {};   // join vote of the last kAsk to the peer
    std::optional<ProposalKey> silent = {};  // join vote of the last kNothing of the peer
  };
  /// A data message in flight.
  struct Transfer {
    std::shared_ptr<Message> message;
    std::uint64_t number = 0;
    std::size_t bytes = 0;              // offered bytes of a receive
    std::optional<Error> refusal = {};  // error of a refused send or a wrong receive
  };

  static std::string describe(int source, const Offer& offer);
  void send(const std::shared_ptr<Message>& message);
  Delivery delivery(const Peer& to, const Message& message) const;
  void start_sending(Message& message, std::uint64_t number);
  static std::span<const std::byte> outgoing(Message& message);
  static std::span<std::byte> incoming(Message& receive, std::size_t bytes);
  static void answer(Message& message);
  void check_size(Transfer& over) const;
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
  std::size_t unanswered_ = 0;  // number of sends that wait for kTake
  std::vector<Transfer> transfers_;
  std::multiset<int> unconfirmed_;    // ranks that have not answered `confirm_offers`, per question
  std::shared_ptr<Message> in_hand_;  // message that is in no list while it is matched
  bool has_closed_ = false;           // whether this rank has closed
  std::vector<std::byte> outgoing_;
  std::atomic<std::uint64_t> network_bytes_{0};
};

}  // namespace kolo
