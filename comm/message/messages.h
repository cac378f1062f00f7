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

/// The messages that this rank sends to single ranks and receives from them. The sender offers each
/// in a control frame, the receiver matches offers and receives (`MessageMatching`), and the
/// elements travel in one of three ways:
///
///   kInOffer      up to kMostInOffer:      offer with elements ──►
///   kBehindOffer  to other nodes, up to    offer ──► data message ──►
///                 kMostBehindOffer:
///   kOnDemand     otherwise:               offer ──►  ◄── take  data message ──►
///
/// The first two come unasked, so their senders need not wait for the receiver. Per pair of ranks
/// no more than kRoom bytes of them are unreceived; further messages travel on demand, so a rank
/// never holds more of what nobody has asked for.
///
/// A grouped message has several tensors, which the offer lists. Unless they lie one behind
/// another, its elements are packed into memory of its own while they are on their way.
///
/// A message that does not fit its receive fails on both sides and harms nothing else. If the
/// sender's call was over by then, as for a message that came unasked, the sender logs the error.
///
/// A rank that has joined sends nothing until all have, and receives only what it had asked for
/// before; one that has closed does so for good. A call that only such ranks can end fails with an
/// error, as soon as the program waits for it or those ranks have closed; what they sent before is
/// received.
///
/// Threads: the engine's; `network_bytes` any.
/// Errors:  none but those of the transport and for want of memory, which end the job.
class Messages final : public MessageFrames {
 public:
  static constexpr std::size_t kMostInOffer = std::size_t{4} << 10;
  static constexpr std::size_t kMostBehindOffer = std::size_t{256} << 10;
  static constexpr std::size_t kRoom = std::size_t{1} << 20;

  /// `transport` outlives it; `bucket` is the number in the tags of its data messages, `group` what
  /// errors name.
  Messages(Transport& transport, BucketId bucket, std::string group = {})
      : transport_(transport), bucket_(bucket), group_(std::move(group)) {}

  /// Before: the caller keeps it until it is answered, and its peer and buffer are checked.
  void submit(const std::shared_ptr<Message>& message);
  /// If no message has come for this receive, it fails with `error`; else nothing happens.
  void withdraw(const std::shared_ptr<Message>& receive, const Error& error);
  bool receive(int peer, const Frame& frame) override;
  /// Answers those whose data message is there, or has left. Returns whether there was one.
  bool poll();

  /// A call waits for another rank, or for the transport.
  bool waiting() const {
    return matching_.has_receives() || unanswered_ > 0 || !transfers_.empty();
  }
  /// While ranks have joined, which vote on `join`, or, for good, closed, and this rank has not
  /// joined but may have closed: asks those whether they will end calls of this rank, and fails the
  /// calls that they will not. To be called again and again. Before: `joined`, with those that have
  /// closed, is not empty.
  void end_hopeless(const std::set<int>& joined, const std::set<int>& closed, const Topic& join);

  /// Appends the ranks that calls wait for.
  void append_awaited_peers(std::vector<int>& peers) const;
  /// "a receive from rank 1 with tag 5, ...", or "no message".
  std::string describe_wait() const;

  /// For the agreed end of the job: what was sent to this rank and never received, if anything was.
  /// From now on the transport reports none of it.
  std::optional<Error> take_strays();

  /// The job has failed: so does every call but those whose buffers the transport still uses.
  void fail_all(const Error& error) noexcept;
  /// After the transport's end: so do these. Returns whether it has let go of all buffers.
  bool fail_transfers(const Error& error) noexcept;

  /// Bytes of elements that were sent to other nodes.
  std::uint64_t network_bytes() const { return network_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Unanswered {
    std::uint64_t number = 0;
    std::shared_ptr<Message> message;
    std::optional<Topic> recalled = {};  // the join for which it was
  };
  /// What this rank knows of another one, or of itself.
  struct Peer {
    std::uint64_t next_number = 0;  // of a message to it
    std::size_t room = kRoom;       // bytes that may go there unasked
    std::size_t owed = 0;           // bytes that came unasked and are received; it knows of none
    std::deque<Unanswered> unanswered;  // sends on demand, by number
    std::optional<Topic> asked = {};    // the last join for which it was asked what it sends
    std::optional<Topic> silent = {};   // and for which it has answered: nothing
  };
  /// A data message in flight.
  struct Transfer {
    std::shared_ptr<Message> message;
    std::uint64_t number = 0;
    std::optional<Error> refusal = {};  // of a send
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
  void recall(const std::set<int>& joined, const std::set<int>& closed, const Topic& join);
  bool is_silent(int peer, const Topic& join);
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
  std::size_t unanswered_ = 0;  // of all peers
  std::vector<Transfer> transfers_;
  std::shared_ptr<Message> in_hand_;  // that is in no list while it is joined with its offer
  bool has_closed_ = false;           // this rank
  std::vector<std::byte> outgoing_;
  std::atomic<std::uint64_t> network_bytes_{0};
};

}  // namespace kolo
