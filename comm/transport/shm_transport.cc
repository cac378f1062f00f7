#include "comm/transport/shm_transport.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/transport/message_stream.h"
#include "comm/transport/peer_memory.h"

namespace kolo {
struct ShmTransport::Peer {
  Peer(int peer_rank, Arena mapped, FileDescriptor event_fd, FileDescriptor connection,
       const ShmLayout& layout, const TransportLimits& limits)
      : rank(peer_rank),
        arena(std::move(mapped)),
        bell_fd(std::move(event_fd)),
        socket(std::move(connection)),
        segment(arena.data(), layout, limits.flags_per_peer) {}

  /// Opens the rings of the peer: this rank writes to the peer's memory and reads its own memory.
  void open_streams(const ShmSegment& own, std::size_t own_index, std::size_t peer_index) {
    data_out.emplace(segment.data_ring(own_index));
    control_out.emplace(segment.control_ring(own_index));
    data_in.emplace(own.data_ring(peer_index));
    control_in.emplace(own.control_ring(peer_index));
  }

  void ring(Doorbell::News news) { segment.doorbell().ring(news, bell_fd.get()); }
  void signal() { segment.doorbell().signal(bell_fd.get()); }

  const int rank;
  Arena arena;
  FileDescriptor bell_fd;
  FileDescriptor socket;  ///< Empty for this rank itself.
  ShmSegment segment;
  std::optional<MessageWriter> data_out;
  std::optional<MessageWriter> control_out;
  std::optional<MessageReader> data_in;
  std::optional<MessageReader> control_in;
  std::optional<PostedReceive> receive;  ///< The receive of the message that is being read.
  UnexpectedMessage unexpected;          ///< The message that is being read, if it has no receive.
  PeerMemory private_memory;
  ControlFrame frame;  ///< The control frame that is being read.
  bool said_goodbye = false;
  TrafficCounters traffic;
};

ShmTransport::ShmTransport(const Config& config, int world_size)
    : rank_(config.rank),
      world_size_(world_size),
      limits_(config.limits),
      layout_(config.limits, config.node_ranks.size()),
      token_(std::random_device()()),
      waiter_(::epoll_create1(EPOLL_CLOEXEC)),
      local_of_rank_(static_cast<std::size_t>(world_size), -1),
      matcher_(config.node_ranks.size()) {
  if (!waiter_) {
    throw KoloError(Error{.code = ErrorCode::kResources,
                          .rank = rank_,
                          .what = std::string("epoll: ") + std::strerror(errno)});
  }
  const auto& ranks = config.node_ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    check(ranks[i] >= 0 && ranks[i] < world_size, "a rank of this node is not of the world");
    local_of_rank_[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
    if (ranks[i] == rank_) own_index_ = i;
  }

  Arena arena = Arena::create(layout_.total_bytes());
  arena.commit(0, layout_.data_offset());
  FileDescriptor bell_fd = make_event_fd();
  NodeOffer offer{.arena_fd = arena.fd(), .bell_fd = bell_fd.get()};
  if (config.opens_memory) offer.token = {reinterpret_cast<std::uint64_t>(&token_), token_};
  auto met = meet_node_peers(config, offer);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool own = i == own_index_;
    peers_.push_back(std::make_unique<Peer>(
        ranks[i],
        own ? std::move(arena) : Arena::adopt(std::move(met[i]->arena), layout_.total_bytes()),
        own ? std::move(bell_fd) : std::move(met[i]->bell),
        own ? FileDescriptor() : std::move(met[i]->socket), layout_, limits_));
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (i != own_index_) try_memory(*peers_[i], met[i]->token);
    peers_[i]->open_streams(own_segment(), own_index_, i);
    watch(i == own_index_ ? peers_[i]->bell_fd.get() : peers_[i]->socket.get(), i);
  }
}

/// Tests whether this rank can read memory of the peer, and writes the result to the peer's memory.
void ShmTransport::try_memory(Peer& peer, const MemoryToken& token) const {
  peer.private_memory = PeerMemory(peer.socket.get());
  const Reads reads = peer.private_memory.holds(token) ? Reads::kYes : Reads::kNo;
  peer.segment.reads(own_index_)
      .store(static_cast<std::uint64_t>(reads), std::memory_order_release);
}

ShmTransport::~ShmTransport() { shutdown(false); }

void ShmTransport::isend(int peer, const Tag& tag, std::span<const std::byte> data,
                         Completion& done) {
  Peer& to = peer_of(peer);
  if (closed_) return;
  to.traffic.data_sent += data.size();
  to.data_out->push(pack(tag), data, done);
  if (to.data_out->pump()) to.ring(Doorbell::News::kMail);
}

void ShmTransport::irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) {
  Peer& from = peer_of(peer);
  if (closed_) return;
  const auto index = static_cast<std::size_t>(local_of_rank_[static_cast<std::size_t>(peer)]);
  const PostedReceive receive{pack(tag), data, &done};
  done.state = Completion::State::kPending;
  if (const auto message = matcher_.take_message(index, receive.tag)) {
    deliver(from, message->bytes, receive);
  } else {
    matcher_.post(index, receive);
  }
}

void ShmTransport::send_control(int peer, std::span<const std::byte> bytes) {
  Peer& to = peer_of(peer);
  if (closed_) return;
  to.traffic.control_sent += bytes.size();
  ++to.traffic.control_frames_sent;
  to.control_out->push_copy(bytes);
  to.control_out->pump();
  to.ring(Doorbell::News::kUrgent);
}

bool ShmTransport::receive_control(ControlFrame& frame) {
  if (next_control_ == control_.size()) return false;
  const ControlFrame& next = control_[next_control_++];
  frame.peer = next.peer;
  frame.bytes.assign(next.bytes.begin(), next.bytes.end());
  if (next_control_ == control_.size()) {
    control_.clear();
    next_control_ = 0;
  }
  return true;
}

bool ShmTransport::is_mapped(int peer) const {
  return peer >= 0 && peer < world_size_ && local_of_rank_[static_cast<std::size_t>(peer)] >= 0;
}

std::span<std::byte> ShmTransport::memory(int peer) { return peer_of(peer).segment.data(); }

bool ShmTransport::is_open_to_peers() {
  if (is_open_) return true;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const std::uint64_t reads = own_segment().reads(i).load(std::memory_order_acquire);
    if (i != own_index_ && reads != static_cast<std::uint64_t>(Reads::kYes)) return false;
  }
  return is_open_ = true;
}

void ShmTransport::read_memory(int peer, std::uint64_t address, std::span<std::byte> to) {
  if (const int failed = peer_of(peer).private_memory.read(address, to)) {
    throw_memory_error(rank_, peer, "reading", failed);
  }
}

void ShmTransport::write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) {
  if (const int failed = peer_of(peer).private_memory.write(address, from)) {
    throw_memory_error(rank_, peer, "writing", failed);
  }
}

void ShmTransport::commit(std::size_t offset, std::size_t bytes, const Pause& pause) {
  if (offset > layout_.data_bytes() || bytes > layout_.data_bytes() - offset) {
    throw KoloError(Error{.code = ErrorCode::kResources,
                          .rank = rank_,
                          .what = "the arena needs " + std::to_string(offset + bytes) +
                                  " bytes and is limited to " +
                                  std::to_string(layout_.data_bytes())});
  }
  peers_[own_index_]->arena.commit(layout_.data_offset() + offset, bytes, pause);
}

void ShmTransport::signal(int peer, std::uint32_t slot, std::uint64_t value) {
  check(slot < limits_.flags_per_peer, "flag slot out of range");
  Peer& to = peer_of(peer);
  to.segment.flag(own_index_, slot).store(value, std::memory_order_release);
  to.signal();
}

std::uint64_t ShmTransport::signalled(int peer, std::uint32_t slot) const {
  check(is_mapped(peer) && slot < limits_.flags_per_peer, "flag slot out of range");
  const auto writer = static_cast<std::size_t>(local_of_rank_[static_cast<std::size_t>(peer)]);
  return own_segment().flag(writer, slot).load(std::memory_order_acquire);
}

std::uint64_t ShmTransport::arrive(int owner, std::uint32_t counter) {
  return counter_word(owner, counter).fetch_add(1, std::memory_order_acq_rel) + 1;
}

std::uint64_t ShmTransport::counter(int owner, std::uint32_t counter) const {
  return counter_word(owner, counter).load(std::memory_order_acquire);
}

void ShmTransport::set_counter(std::uint32_t counter, std::uint64_t value) {
  counter_word(rank_, counter).store(value, std::memory_order_release);
}

bool ShmTransport::poll() {
  if (closed_) return false;
  // Sockets are checked first: this poll then reads all data that a peer wrote before it ended.
  const bool found = (check_due_ || quiet_polls_ >= kPollsPerCheck) && check_sockets();
  const std::uint32_t news = own_bell().answer();
  if (news == 0) {
    ++quiet_polls_;
    return found;
  }
  quiet_polls_ = 0;
  if (news != static_cast<std::uint32_t>(Doorbell::News::kSignal)) {
    for (const auto& peer : peers_) move_messages(*peer);
    if (news == static_cast<std::uint32_t>(Doorbell::News::kUrgent)) read_errors();
  }
  return true;
}

void ShmTransport::ring(int peer) {
  if (peer == rank_) return peer_of(peer).ring(Doorbell::News::kUrgent);
  peer_of(peer).signal();
}

void ShmTransport::post_error(const Error& error) {
  own_segment().error().write(error);
  for (const auto& peer : peers_) peer->ring(Doorbell::News::kUrgent);
}

std::string ShmTransport::stuck_in(int peer) const {
  return peer_of(peer).segment.error().stuck_in();
}

/// Reports the errors that peers with a stuck driving thread have posted.
void ShmTransport::read_errors() {
  for (const auto& peer : peers_) {
    if (peer->rank == rank_ || failure_) continue;
    if (auto error = peer->segment.error().read()) fail(std::move(*error));
  }
}

bool ShmTransport::sleep(Duration limit) {
  if (!own_bell().listen()) return false;
  check_due_ |= !own_bell().sleep(limit);
  return true;
}

void ShmTransport::disarm() {
  unarm();
  drain_event(peers_[own_index_]->bell_fd.get());
  check_due_ = true;
}

void ShmTransport::say_goodbye() {
  if (closed_) return;
  for (const auto& peer : peers_) {
    // The socket is closed if the peer has ended. If frames to the peer wait for room, they may
    // never arrive and may hold the reason, so the peer must report the end of this rank.
    if (!peer->socket || peer->control_out->has_queued()) continue;
    ::send(peer->socket.get(), kGoodbye.data(), kGoodbye.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void ShmTransport::shutdown(bool orderly) {
  if (closed_) return;
  if (orderly) tell_strays();
  for (const auto& peer : peers_) peer->control_out->cancel();
  if (orderly) say_goodbye();
  closed_ = true;
  matcher_.cancel();
  control_.clear();
  next_control_ = 0;
  for (const auto& peer : peers_) {
    peer->data_out->cancel();
    if (peer->receive) peer->receive->done->state = Completion::State::kIdle;
    peer->receive.reset();
    if (!peer->socket) continue;
    ::shutdown(peer->socket.get(), SHUT_RDWR);
    peer->socket.reset();
    peer->ring(Doorbell::News::kUrgent);
  }
}

/// Reports a message without a receive. All messages sent before the agreed end have entered rings.
void ShmTransport::tell_strays() {
  for (const auto& peer : peers_) read_data(*peer);
  const UnexpectedMessage* stray = matcher_.find_stray(abandoned_);
  for (const auto& peer : peers_) {
    const UnexpectedMessage& arriving = peer->unexpected;
    const bool is_arriving = !peer->receive && !arriving.bytes.empty();
    if (is_arriving && !abandoned_.covers(unpack(arriving.tag))) stray = &arriving;
  }
  if (stray == nullptr || failure_) return;
  fail(stray_message(rank_, unpack(stray->tag), stray->bytes.size()));
  log::error(failure_->to_string());
}

TrafficCounters ShmTransport::traffic(int peer) const {
  return is_mapped(peer) ? peer_of(peer).traffic : TrafficCounters{};
}

ShmTransport::Peer& ShmTransport::peer_of(int rank) const {
  check(is_mapped(rank), "rank is not on this node");
  return *peers_[static_cast<std::size_t>(local_of_rank_[static_cast<std::size_t>(rank)])];
}

ShmSegment ShmTransport::own_segment() const { return peers_[own_index_]->segment; }
Doorbell& ShmTransport::own_bell() const { return own_segment().doorbell(); }

std::atomic<std::uint64_t>& ShmTransport::counter_word(int owner, std::uint32_t counter) const {
  check(counter < limits_.counters, "counter out of range");
  return peer_of(owner).segment.counter(counter);
}

void ShmTransport::move_messages(Peer& peer) {
  read_control(peer);
  read_data(peer);
  const bool wrote_control = peer.control_out->pump();
  const bool wrote_data = peer.data_out->pump();
  if (wrote_control || wrote_data) {
    peer.ring(wrote_control ? Doorbell::News::kUrgent : Doorbell::News::kMail);
  }
}

void ShmTransport::read_data(Peer& peer) {
  const auto index = static_cast<std::size_t>(local_of_rank_[static_cast<std::size_t>(peer.rank)]);
  const auto begin = [&](const MessageHeader& header) -> std::span<std::byte> {
    peer.receive = matcher_.take_receive(index, header.tag);
    if (peer.receive && header.bytes <= peer.receive->data.size()) {
      return peer.receive->data.first(header.bytes);
    }
    if (peer.receive) {
      fail(message_too_long(rank_, peer.rank, header.bytes, peer.receive->data.size()));
      matcher_.abandon(*std::exchange(peer.receive, std::nullopt));
    }
    peer.unexpected.tag = header.tag;
    peer.unexpected.bytes.resize(header.bytes);
    return peer.unexpected.bytes;
  };
  const auto end = [&](const MessageHeader& header) {
    if (peer.receive) {
      peer.traffic.data_received += header.bytes;
      peer.receive->done->bytes = header.bytes;
      peer.receive->done->state = Completion::State::kDone;
      peer.receive.reset();
    } else if (const auto posted = matcher_.take_receive(index, header.tag)) {
      // The receive was posted while the message was being read.
      deliver(peer, std::exchange(peer.unexpected, {}).bytes, *posted);
    } else {
      matcher_.keep(index, std::exchange(peer.unexpected, {}));
    }
  };
  const std::size_t taken = peer.data_in->read(begin, end);
  if (taken == 0) return;
  if (peer.data_in->ring().take_writer_waits()) peer.ring(Doorbell::News::kMail);
  if (taken >= ShmLayout::kDataRingBytes) ring(rank_);  // there may be more data: poll again
}

void ShmTransport::read_control(Peer& peer) {
  const auto begin = [&](const MessageHeader& header) -> std::span<std::byte> {
    peer.frame.peer = peer.rank;
    peer.frame.bytes.resize(header.bytes);
    return peer.frame.bytes;
  };
  const auto end = [&](const MessageHeader& header) {
    peer.traffic.control_received += header.bytes;
    control_.push_back(std::exchange(peer.frame, {}));
  };
  const std::size_t taken = peer.control_in->read(begin, end);
  if (taken == 0) return;
  if (peer.control_in->ring().take_writer_waits()) peer.ring(Doorbell::News::kUrgent);
  if (taken >= ShmLayout::kControlRingBytes) ring(rank_);
}

void ShmTransport::deliver(Peer& peer, std::span<const std::byte> bytes,
                           const PostedReceive& receive) {
  if (bytes.size() > receive.data.size()) {
    fail(message_too_long(rank_, peer.rank, bytes.size(), receive.data.size()));
    matcher_.abandon(receive);
    return;
  }
  std::ranges::copy(bytes, receive.data.begin());
  peer.traffic.data_received += bytes.size();
  receive.done->bytes = bytes.size();
  receive.done->state = Completion::State::kDone;
}

bool ShmTransport::check_sockets() {
  check_due_ = false;
  quiet_polls_ = 0;
  bool found = false;
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(waiter_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::size_t index = events[static_cast<std::size_t>(i)].data.u64;
    if (index == own_index_) continue;
    read_socket(*peers_[index]);
    found = true;
  }
  return found;
}

void ShmTransport::read_socket(Peer& peer) {
  std::array<char, kGoodbye.size()> packet;
  for (;;) {
    const ssize_t count = ::recv(peer.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    // The kernel reports a reset once, before packets that can still be read.
    if (count < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) break;
    const std::string_view text(packet.data(), static_cast<std::size_t>(count));
    peer.said_goodbye = peer.said_goodbye || text == kGoodbye;
  }
  ::epoll_ctl(waiter_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
  peer.socket.reset();
  if (peer.said_goodbye) return;
  read_errors();
  fail({.code = ErrorCode::kPeerLost,
        .rank = rank_,
        .peer = peer.rank,
        .what = "rank " + std::to_string(peer.rank) +
                " is gone: its process ended, or stopped after an error of its own"});
}

void ShmTransport::watch(int fd, std::size_t index) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = index;
  ensure(::epoll_ctl(waiter_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll refuses a descriptor");
}

void ShmTransport::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

}  // namespace kolo
