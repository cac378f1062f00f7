#include "comm/message/messages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "comm/message/message_matching.h"
#include "comm/transport/tag.h"

namespace kolo {
namespace {

constexpr std::size_t kMostInText = 3;

bool came_unasked(const Offer& offer) { return offer.delivery != Delivery::kOnDemand; }

/// The tag of a data message. Messages in flight have equal tags only if 2^32 messages of the same
/// two ranks were sent between them.
Tag data_tag(BucketId bucket, int source, std::uint64_t number) {
  const auto low_bits = static_cast<std::uint32_t>(number);
  return {.source = static_cast<std::uint32_t>(source),
          .bucket = bucket,
          .iteration = low_bits >> kTagOrdinalBits,
          .ordinal = low_bits};
}

/// Receives and discards the data of a refused message that is already in flight.
class Discarded final : public Message {
 public:
  explicit Discarded(std::size_t bytes) : memory_(bytes) { kind = Kind::kReceive; }
  void complete() noexcept override {}
  void fail(const Error& /*error*/) noexcept override {}
  bool is_awaited() const override { return false; }
  std::span<std::byte> memory() { return memory_; }

 private:
  std::vector<std::byte> memory_;
};

}  // namespace

void Messages::submit(const std::shared_ptr<Message>& message) {
  if (message->kind == Message::Kind::kSend) return send(message);
  if (const auto early = matching_.take_offer(*message)) {
    join(early->source, early->offer, early->payload, message);
  } else {
    matching_.post(message);
  }
}

void Messages::withdraw(const std::shared_ptr<Message>& receive, const Error& error) {
  if (matching_.withdraw(*receive)) receive->fail(error);
}

// --- Sender -------------------------------------------------------------------------------------

void Messages::send(const std::shared_ptr<Message>& message) {
  const int peer = message->peer;
  const std::size_t bytes = message->bytes();
  Peer& to = peers_[peer];
  Offer offer{.tag = message->tag, .number = to.next_number++, .delivery = delivery(to, *message)};
  describe_in(offer, message->parts());
  if (came_unasked(offer)) to.room -= bytes;
  switch (offer.delivery) {
    case Delivery::kInOffer:
      give(peer, {.kind = FrameKind::kOffer, .offer = offer, .payload = outgoing(*message)});
      count_sent(peer, bytes);
      answer(*message);
      return;
    case Delivery::kBehindOffer:
      transfers_.push_back({.message = message, .number = offer.number});
      give(peer, {.kind = FrameKind::kOffer, .offer = offer});
      start_sending(*message, offer.number);
      return;
    case Delivery::kOnDemand:
      to.unanswered.push_back({offer.number, message});
      ++unanswered_;
      give(peer, {.kind = FrameKind::kOffer, .offer = offer});
      return;
  }
}

Delivery Messages::delivery(const Peer& to, const Message& message) const {
  const std::size_t bytes = message.bytes();
  if (bytes > to.room) return Delivery::kOnDemand;
  if (bytes <= kMostInOffer) return Delivery::kInOffer;
  // Inside a node, kOnDemand costs less than the additional copy of an unexpected message.
  const bool goes_ahead = bytes <= kMostBehindOffer && !transport_.is_mapped(message.peer);
  return goes_ahead ? Delivery::kBehindOffer : Delivery::kOnDemand;
}

void Messages::start_sending(Message& message, std::uint64_t number) {
  const std::span<const std::byte> data = outgoing(message);
  message.transfer = {};
  transport_.isend(message.peer, data_tag(bucket_, transport_.rank(), number), data,
                   message.transfer);
  count_sent(message.peer, data.size());
}

/// Returns the elements of a send as contiguous bytes, packed into `message.packed` if needed.
std::span<const std::byte> Messages::outgoing(Message& message) {
  if (const auto piece = in_one_piece(message.parts())) return *piece;
  const std::size_t bytes = message.bytes();
  message.packed = allocate_aligned(bytes);
  pack(message.parts(), message.packed.get());
  return {message.packed.get(), bytes};
}

bool Messages::taken(int peer, std::uint64_t number) {
  in_hand_ = take_unanswered(peers_[peer], number);
  if (in_hand_ == nullptr) return false;
  transfers_.push_back({.message = in_hand_, .number = number});
  start_sending(*in_hand_, number);
  in_hand_.reset();
  return true;
}

void Messages::refused(int peer, std::uint64_t number, const Error& error) {
  if (const auto message = take_unanswered(peers_[peer], number)) return message->fail(error);
  for (Transfer& transfer : transfers_) {
    const Message& message = *transfer.message;
    const bool is_it = message.kind == Message::Kind::kSend && message.peer == peer;
    if (!is_it || transfer.number != number) continue;
    transfer.refusal = error;  // the transport still uses the buffer
    return;
  }
  log::error(error.to_string());
}

std::shared_ptr<Message> Messages::take_unanswered(Peer& peer, std::uint64_t number) {
  const auto waits = std::ranges::find(peer.unanswered, number, &Unanswered::number);
  if (waits == peer.unanswered.end()) return nullptr;
  std::shared_ptr<Message> message = std::move(waits->message);
  peer.unanswered.erase(waits);
  --unanswered_;
  return message;
}

bool Messages::make_room(int peer, std::uint64_t bytes) {
  Peer& to = peers_[peer];
  if (bytes > kRoom - to.room) return false;
  to.room += bytes;
  return true;
}

// --- Receiver -----------------------------------------------------------------------------------

bool Messages::take_offer(int peer, const Frame& frame) {
  const Offer& offer = frame.offer;
  const std::optional<std::size_t> bytes = bytes_of(offer);
  if (!bytes) return false;
  const bool carries = offer.delivery == Delivery::kInOffer;
  if (frame.payload.size() != (carries ? *bytes : 0)) return false;
  if (came_unasked(offer) && *bytes > kMostBehindOffer) return false;
  in_hand_ = matching_.take_receive(peer, offer.tag);
  if (in_hand_ != nullptr) {
    join(peer, offer, frame.payload, in_hand_);
    in_hand_.reset();
  } else {
    matching_.keep(
        {.source = peer, .offer = offer, .payload = {frame.payload.begin(), frame.payload.end()}});
  }
  return true;
}

void Messages::join(int source, const Offer& offer, std::span<const std::byte> payload,
                    const std::shared_ptr<Message>& receive) {
  if (!fits(offer, *receive)) return refuse(source, offer, *receive);
  const std::size_t bytes = *bytes_of(offer);
  receive->received = {.source = source, .count = count_of(offer)};
  if (offer.delivery == Delivery::kInOffer) {
    unpack(payload, receive->parts());
    receive->complete();
    owe(source, bytes);
    return;
  }
  transfers_.push_back({.message = receive, .number = offer.number, .bytes = bytes});
  start_receiving(source, offer.number, incoming(*receive, bytes), *receive);
  if (offer.delivery == Delivery::kBehindOffer) return owe(source, bytes);
  give(source, {.kind = FrameKind::kTake,
                .least = offer.number,
                .greatest = std::exchange(peers_[source].owed, 0)});
}

void Messages::start_receiving(int source, std::uint64_t number, std::span<std::byte> data,
                               Message& message) {
  message.transfer = {};
  transport_.irecv(source, data_tag(bucket_, source, number), data, message.transfer);
}

/// Returns contiguous memory for the elements of a receive: its buffer, or `receive.packed`.
std::span<std::byte> Messages::incoming(Message& receive, std::size_t bytes) {
  if (const auto piece = in_one_piece(receive.parts())) return piece->first(bytes);
  receive.packed = allocate_aligned(bytes);
  return {receive.packed.get(), bytes};
}

std::string Messages::describe(int source, const Offer& offer) {
  return fmt::format("rank {} sends {} with tag {}", source, describe_tensors(offer), offer.tag);
}

void Messages::refuse(int source, const Offer& offer, Message& receive) {
  const int rank = transport_.rank();
  const Error error{.code = ErrorCode::kMismatch,
                    .rank = rank,
                    .peer = source,
                    .group = group_,
                    .verb = "run",
                    .what = fmt::format("{} to rank {}, {}", describe(source, offer), rank,
                                        describe_misfit(offer, receive))};
  receive.fail(error);
  if (offer.delivery == Delivery::kBehindOffer) {
    const auto instead = std::make_shared<Discarded>(*bytes_of(offer));
    instead->received.source = source;
    transfers_.push_back(
        {.message = instead, .number = offer.number, .bytes = instead->memory().size()});
    start_receiving(source, offer.number, instead->memory(), *instead);
  }
  if (came_unasked(offer)) peers_[source].owed += *bytes_of(offer);
  give(source, {.kind = FrameKind::kRefuse,
                .least = offer.number,
                .greatest = std::exchange(peers_[source].owed, 0),
                .error = error});
}

/// Counts unsolicited bytes that were received. Reports them to the sender once they reach half of
/// kRoom, so that the sender can always use at least half of its room.
void Messages::owe(int peer, std::size_t bytes) {
  Peer& from = peers_[peer];
  from.owed += bytes;
  if (from.owed < kRoom / 2) return;
  give(peer, {.kind = FrameKind::kRoom, .greatest = std::exchange(from.owed, 0)});
}

// --- Both ---------------------------------------------------------------------------------------

bool Messages::receive(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kOffer:
      return take_offer(peer, frame);
    case FrameKind::kRecall:
      recalled(peer, frame);
      return true;
    case FrameKind::kAsk:
      give(peer, {.kind = FrameKind::kNothing, .key = frame.key});
      return true;
    case FrameKind::kNothing:
      if (Coordinator::is_close(frame.key)) {
        unconfirmed_.extract(peer);
      } else {
        peers_[peer].silent = frame.key;
      }
      return true;
    default:
      break;
  }
  if (!make_room(peer, frame.greatest)) return false;
  if (frame.kind == FrameKind::kTake) return taken(peer, frame.least);
  if (frame.kind == FrameKind::kRefuse) refused(peer, frame.least, frame.error);
  return true;
}

/// Sends a control frame. Handles a frame to this rank itself directly.
void Messages::give(int peer, const Frame& frame) {
  if (peer == transport_.rank()) {
    receive(peer, frame);
    return;
  }
  encode(frame, outgoing_);
  transport_.send_control(peer, outgoing_);
}

void Messages::count_sent(int peer, std::size_t bytes) {
  if (transport_.is_mapped(peer)) return;
  network_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

bool Messages::poll() {
  bool any = false;
  for (std::size_t i = 0; i < transfers_.size();) {
    if (transfers_[i].message->transfer.state != Completion::State::kDone) {
      ++i;
      continue;
    }
    Transfer over = std::exchange(transfers_[i], std::move(transfers_.back()));
    transfers_.pop_back();
    any = true;
    check_size(over);
    if (over.refusal) {
      over.message->packed.reset();
      over.message->fail(*over.refusal);
    } else {
      answer(*over.message);
    }
  }
  return any;
}

/// Fails a receive whose data message has another size than the offer, so it is another message.
void Messages::check_size(Transfer& over) const {
  const Message& message = *over.message;
  if (message.kind == Message::Kind::kSend || message.transfer.bytes == over.bytes) return;
  over.refusal = Error{.code = ErrorCode::kInternal,
                       .rank = transport_.rank(),
                       .peer = message.received.source,
                       .group = group_,
                       .verb = "run",
                       .what = fmt::format("{}: {} bytes were offered and {} received",
                                           message.describe(), over.bytes, message.transfer.bytes)};
}

/// Completes a message whose elements have been sent or received.
void Messages::answer(Message& message) {
  if (const AlignedMemory packed = std::move(message.packed);
      packed != nullptr && message.kind == Message::Kind::kReceive) {
    unpack({packed.get(), message.bytes()}, message.parts());
  }
  message.complete();
}

void Messages::append_awaited_peers(std::vector<int>& peers) const {
  const auto append = [&](int peer) {
    if (peer != transport_.rank()) peers.push_back(peer);
  };
  bool awaits_any = false;
  matching_.for_each_receive([&](const Message& receive) {
    if (receive.peer == kAnyRank) {
      awaits_any = true;
    } else {
      append(receive.peer);
    }
  });
  for (int peer = 0; awaits_any && peer < transport_.world_size(); ++peer) append(peer);
  for (const auto& [peer, state] : peers_) {
    if (!state.unanswered.empty()) append(peer);
  }
  for (const Transfer& transfer : transfers_) {
    const Message& message = *transfer.message;
    append(message.kind == Message::Kind::kSend ? message.peer : message.received.source);
  }
  for (const int peer : unconfirmed_) append(peer);
}

std::string Messages::describe_wait() const {
  std::string text;
  std::size_t count = 0;
  const auto add = [&](const Message& message) {
    if (++count <= kMostInText) text += (text.empty() ? "" : ", ") + message.describe();
  };
  matching_.for_each_receive(add);
  for (const auto& [peer, state] : peers_) {
    for (const Unanswered& waits : state.unanswered) add(*waits.message);
  }
  for (const Transfer& transfer : transfers_) add(*transfer.message);
  if (count > kMostInText) text += fmt::format(" and {} more", count - kMostInText);
  return text.empty() ? "no message" : text;
}

// --- The end of a job ---------------------------------------------------------------------------

std::optional<Error> Messages::take_strays() {
  const EarlyOffer* first = nullptr;
  std::size_t count = 0;
  matching_.for_each_offer([&](const EarlyOffer& early) {
    ++count;
    const auto place = [](const EarlyOffer& of) { return std::pair(of.source, of.offer.number); };
    if (first == nullptr || place(early) < place(*first)) first = &early;
  });
  if (first == nullptr) return std::nullopt;
  const int rank = transport_.rank();
  return Error{.code = ErrorCode::kMismatch,
               .rank = rank,
               .peer = first->source,
               .group = group_,
               .verb = "complete",
               .what = describe(first->source, first->offer) +
                       fmt::format(" to rank {}, which has closed without receiving them", rank) +
                       (count > 1 ? fmt::format(" and {} more", count - 1) : "")};
}

void Messages::fail_all(const Error& error) {
  matching_.for_each_receive([&](Message& receive) { receive.fail(error); });
  matching_.clear();
  for (auto& [peer, state] : peers_) {
    for (const Unanswered& waits : state.unanswered) waits.message->fail(error);
    state.unanswered.clear();
  }
  unanswered_ = 0;
  if (in_hand_ != nullptr) std::exchange(in_hand_, nullptr)->fail(error);
  // Each call covers half of the iterations, which here are the upper bits of numbers.
  transport_.abandon({.bucket = bucket_});
  transport_.abandon({.bucket = bucket_, .iteration = 1U << (kTagIterationBits - 1)});
}

bool Messages::let_go(const Error& error) noexcept {
  std::erase_if(transfers_, [&](const Transfer& transfer) {
    if (!transport_.cancel(transfer.message->transfer)) return false;
    transfer.message->fail(error);
    return true;
  });
  return transfers_.empty();
}

void Messages::fail_transfers(const Error& error) noexcept {
  for (const Transfer& transfer : transfers_) transfer.message->fail(error);
  transfers_.clear();
}

}  // namespace kolo
