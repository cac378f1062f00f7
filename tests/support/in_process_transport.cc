#include "tests/support/in_process_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <new>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/base/mutex.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/message_matcher.h"
#include "comm/transport/shm_segment.h"

namespace kolo {

namespace {

constexpr std::align_val_t kPageAlignment{4096};
constexpr int kPoison = 0xCB;

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPageAlignment); }
};
using AlignedMemory = std::unique_ptr<std::byte[], AlignedDelete>;

AlignedMemory make_arena(std::size_t bytes) {
  AlignedMemory memory(static_cast<std::byte*>(::operator new(bytes, kPageAlignment)));
  std::memset(memory.get(), kPoison, bytes);
  return memory;
}

enum class Presence : std::uint8_t { kThere, kLeft, kLost };

struct Letter {
  int sender = -1;
  UnexpectedMessage message;
};

/// Identifies a message that has been copied into its receiver's buffer.
struct Receipt {
  int receiver = -1;
  std::uint64_t tag = 0;
};

/// A send that completes when its message is received.
struct OpenSend {
  Receipt receipt;
  Completion* done = nullptr;
};

}  // namespace

struct InProcessHub::Station {
  Station(std::size_t local_size, const TransportLimits& limits)
      : bell_fd(make_event_fd()),
        arena(make_arena(limits.arena_bytes)),
        flags(local_size * limits.flags_per_peer),
        counters(limits.counters) {}

  void ring(Doorbell::News news) { bell.ring(news, bell_fd.get()); }
  void signal() { bell.signal(bell_fd.get()); }

  bool taken = false;
  std::atomic<Presence> presence{Presence::kThere};
  ErrorCell error;
  Doorbell bell;
  FileDescriptor bell_fd;
  AlignedMemory arena;
  std::vector<std::atomic<std::uint64_t>> flags;  ///< by [local rank of the writer][slot]
  std::vector<std::atomic<std::uint64_t>> counters;

  Mutex mutex;
  std::vector<Letter> letters KOLO_GUARDED_BY(mutex);
  std::vector<Receipt> receipts KOLO_GUARDED_BY(mutex);
  std::vector<ControlFrame> control KOLO_GUARDED_BY(mutex);
};

namespace {

using Station = InProcessHub::Station;

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(const InProcessHub& hub, const TransportLimits& limits,
                     const std::vector<std::unique_ptr<Station>>& stations, int rank)
      : hub_(hub),
        grid_(hub.grid()),
        limits_(limits),
        stations_(stations),
        rank_(rank),
        matcher_(stations.size()),
        traffic_(stations.size()) {}

  ~InProcessTransport() override { shutdown(false); }

  int rank() const override { return rank_; }
  int world_size() const override { return grid_.world_size(); }

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    if (closed_) return;
    Station& station = station_of(peer);
    {
      const MutexLock lock(station.mutex);
      station.letters.push_back({rank_, {pack(tag), {data.begin(), data.end()}}});
    }
    station.ring(Doorbell::News::kMail);
    traffic_of(peer).data_sent += data.size();
    done.state = Completion::State::kPending;
    if (hub_.completes_on_receipt()) {
      open_sends_.push_back({{peer, pack(tag)}, &done});
      return;
    }
    sent_.push_back(&done);
    mine().ring(Doorbell::News::kMail);  // the send completes in this rank's next poll
  }

  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    if (closed_) return;
    const PostedReceive receive{pack(tag), data, &done};
    done.state = Completion::State::kPending;
    if (const auto message = matcher_.take_message(index(peer), receive.tag)) {
      deliver(peer, message->bytes, receive);
    } else {
      matcher_.post(index(peer), receive);
    }
  }

  void abandon(const Tag& first) override { abandoned_.add(first); }
  bool cancel(Completion& done) override {
    return done.state != Completion::State::kPending || matcher_.cancel(done);
  }

  void send_control(int peer, std::span<const std::byte> bytes) override {
    if (closed_) return;
    Station& station = station_of(peer);
    {
      const MutexLock lock(station.mutex);
      station.control.push_back({rank_, {bytes.begin(), bytes.end()}});
    }
    station.ring(Doorbell::News::kUrgent);
    traffic_of(peer).control_sent += bytes.size();
    ++traffic_of(peer).control_frames_sent;
  }

  bool receive_control(ControlFrame& frame) override {
    if (control_.empty()) return false;
    const ControlFrame& first = control_.front();
    frame.peer = first.peer;
    frame.bytes.assign(first.bytes.begin(), first.bytes.end());
    control_.pop_front();
    return true;
  }

  bool is_mapped(int peer) const override { return grid_.same_node(rank_, peer); }

  std::span<std::byte> memory(int peer) override {
    return {mapped(peer).arena.get(), limits_.arena_bytes};
  }

  bool is_open_to_peers() override { return hub_.opens_memory(); }
  bool is_in_huge_pages(std::span<const std::byte>) override { return hub_.has_huge_pages(); }
  void read_memory(int, std::uint64_t address, std::span<std::byte> to) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
  }
  void write_memory(int, std::uint64_t address, std::span<const std::byte> from) override {
    std::memcpy(reinterpret_cast<void*>(address), from.data(), from.size());
  }

  void commit(std::size_t offset, std::size_t bytes, const Pause&) override {
    if (offset <= limits_.arena_bytes && bytes <= limits_.arena_bytes - offset) return;
    throw KoloError(Error{.code = ErrorCode::kResources,
                          .rank = rank_,
                          .what = "the arena needs " + std::to_string(offset + bytes) +
                                  " bytes and is limited to " +
                                  std::to_string(limits_.arena_bytes)});
  }

  void signal(int peer, std::uint32_t slot, std::uint64_t value) override {
    Station& station = mapped(peer);
    station.flags[flag_index(rank_, slot)].store(value, std::memory_order_release);
    station.signal();
  }

  std::uint64_t signalled(int peer, std::uint32_t slot) const override {
    check(is_mapped(peer), "flags come from mapped peers only");
    return mine().flags[flag_index(peer, slot)].load(std::memory_order_acquire);
  }

  std::uint64_t arrive(int owner, std::uint32_t counter) override {
    return counter_of(owner, counter).fetch_add(1, std::memory_order_acq_rel) + 1;
  }
  std::uint64_t counter(int owner, std::uint32_t counter) const override {
    return counter_of(owner, counter).load(std::memory_order_acquire);
  }
  void set_counter(std::uint32_t counter, std::uint64_t value) override {
    counter_of(rank_, counter).store(value, std::memory_order_release);
  }

  bool poll() override {
    if (closed_ || mine().bell.answer() == 0) return false;
    for (Completion* done : sent_) done->state = Completion::State::kDone;
    sent_.clear();
    {
      Station& station = mine();
      const MutexLock lock(station.mutex);
      letters_.swap(station.letters);
      receipts_.swap(station.receipts);
      control_arrived_.swap(station.control);
    }
    for (Letter& letter : letters_) accept(letter);
    letters_.clear();
    for (const Receipt& receipt : receipts_) close_send(receipt);
    receipts_.clear();
    for (ControlFrame& frame : control_arrived_) {
      traffic_of(frame.peer).control_received += frame.bytes.size();
      control_.push_back(std::move(frame));
    }
    control_arrived_.clear();
    note_errors();
    note_lost_peers();
    return true;
  }

  void post_error(const Error& error) override {
    mine().error.write(error);
    for (int peer : grid_.ranks_of_node(grid_.node(rank_))) {
      station_of(peer).ring(Doorbell::News::kUrgent);
    }
  }

  void note_stuck(std::string_view verb) override { mine().error.note_stuck(verb); }
  std::string stuck_in(int peer) const override { return mapped(peer).error.stuck_in(); }

  void ring(int peer) override {
    if (peer == rank_) return mine().ring(Doorbell::News::kUrgent);
    mapped(peer).signal();
  }
  bool arm() override { return mine().bell.listen() && mine().bell.park(Doorbell::Rest::kParked); }
  bool arm_idle() override { return mine().bell.park(Doorbell::Rest::kIdle); }
  void disarm() override {
    unarm();
    drain_event(mine().bell_fd.get());
  }
  void unarm() override { mine().bell.unpark(); }
  bool sleep(Duration limit) override {
    if (!mine().bell.listen()) return false;
    mine().bell.sleep(limit);
    return true;
  }
  std::vector<int> wake_fds() const override { return {mine().bell_fd.get()}; }

  std::optional<Error> failure() const override { return failure_; }

  void say_goodbye() override { said_goodbye_ = true; }

  void shutdown(bool orderly) override {
    if (closed_) return;
    if (orderly) tell_strays();
    closed_ = true;
    for (Completion* done : sent_) done->state = Completion::State::kIdle;
    for (const OpenSend& open : open_sends_) open.done->state = Completion::State::kIdle;
    sent_.clear();
    open_sends_.clear();
    matcher_.cancel();
    control_.clear();
    mine().presence.store(orderly || said_goodbye_ ? Presence::kLeft : Presence::kLost,
                          std::memory_order_release);
    for (const auto& station : stations_) station->ring(Doorbell::News::kUrgent);
  }

  TrafficCounters traffic(int peer) const override { return traffic_[index(peer)]; }

 private:
  std::size_t index(int peer) const {
    check(peer >= 0 && peer < world_size(), "no such rank");
    return static_cast<std::size_t>(peer);
  }
  Station& station_of(int peer) const { return *stations_[index(peer)]; }
  Station& mine() const { return station_of(rank_); }
  Station& mapped(int peer) const {
    check(is_mapped(peer), "rank is not mapped here");
    return station_of(peer);
  }
  TrafficCounters& traffic_of(int peer) { return traffic_[index(peer)]; }

  std::size_t flag_index(int writer, std::uint32_t slot) const {
    check(slot < limits_.flags_per_peer, "flag slot out of range");
    return static_cast<std::size_t>(grid_.local_rank(writer)) * limits_.flags_per_peer + slot;
  }
  std::atomic<std::uint64_t>& counter_of(int owner, std::uint32_t counter) const {
    check(counter < limits_.counters, "counter out of range");
    return mapped(owner).counters[counter];
  }

  void accept(Letter& letter) {
    if (const auto receive = matcher_.take_receive(index(letter.sender), letter.message.tag)) {
      deliver(letter.sender, letter.message.bytes, *receive);
    } else {
      matcher_.keep(index(letter.sender), std::move(letter.message));
    }
  }

  void deliver(int peer, const std::vector<std::byte>& bytes, const PostedReceive& receive) {
    if (bytes.size() > receive.data.size()) {
      fail(message_too_long(rank_, peer, bytes.size(), receive.data.size()));
      matcher_.abandon(receive);
      return;
    }
    std::ranges::copy(bytes, receive.data.begin());
    traffic_of(peer).data_received += bytes.size();
    receive.done->bytes = bytes.size();
    receive.done->state = Completion::State::kDone;
    if (!hub_.completes_on_receipt()) return;
    Station& station = station_of(peer);
    {
      const MutexLock lock(station.mutex);
      station.receipts.push_back({rank_, receive.tag});
    }
    station.ring(Doorbell::News::kMail);
  }

  void close_send(const Receipt& receipt) {
    const auto sent = std::ranges::find_if(open_sends_, [&](const OpenSend& open) {
      return open.receipt.receiver == receipt.receiver && open.receipt.tag == receipt.tag;
    });
    sent->done->state = Completion::State::kDone;
    open_sends_.erase(sent);
  }

  void tell_strays() {
    poll();
    const UnexpectedMessage* stray = matcher_.find_stray(abandoned_);
    if (stray == nullptr || failure_) return;
    fail(stray_message(rank_, unpack(stray->tag), stray->bytes.size()));
    log::error(failure_->to_string());
  }

  void note_errors() {
    for (int peer : grid_.ranks_of_node(grid_.node(rank_))) {
      if (peer == rank_ || failure_) continue;
      if (auto error = station_of(peer).error.read()) fail(std::move(*error));
    }
  }

  void note_lost_peers() {
    for (int peer = 0; peer < world_size() && !failure_; ++peer) {
      if (station_of(peer).presence.load(std::memory_order_acquire) != Presence::kLost) continue;
      fail(Error{.code = ErrorCode::kPeerLost,
                 .rank = rank_,
                 .peer = peer,
                 .what = "rank " + std::to_string(peer) + " is gone"});
    }
  }

  void fail(Error error) {
    if (!failure_) failure_ = std::move(error);
  }

  const InProcessHub& hub_;
  const ProcessGrid& grid_;
  const TransportLimits limits_;
  const std::vector<std::unique_ptr<Station>>& stations_;
  const int rank_;
  MessageMatcher matcher_;
  AbandonedRuns abandoned_;
  std::vector<Completion*> sent_;     ///< Completed in the next poll.
  std::vector<OpenSend> open_sends_;  ///< Completed on receipt.
  std::vector<Receipt> receipts_;     ///< Swapped with the mailbox, like `letters_`.
  std::vector<Letter> letters_;  ///< Swapped with the mailbox, so that both keep their capacity.
  std::vector<ControlFrame> control_arrived_;
  std::deque<ControlFrame> control_;
  std::vector<TrafficCounters> traffic_;
  std::optional<Error> failure_;
  bool said_goodbye_ = false;
  bool closed_ = false;
};

}  // namespace

InProcessHub::InProcessHub(ProcessGrid grid, TransportLimits limits)
    : grid_(std::move(grid)), limits_(limits) {
  for (int rank = 0; rank < grid_.world_size(); ++rank) {
    stations_.push_back(
        std::make_unique<Station>(static_cast<std::size_t>(grid_.local_size(rank)), limits_));
  }
}

InProcessHub::~InProcessHub() = default;

std::unique_ptr<Transport> InProcessHub::transport(int rank) {
  check(rank >= 0 && rank < grid_.world_size(), "no such rank");
  Station& station = *stations_[static_cast<std::size_t>(rank)];
  check(!std::exchange(station.taken, true), "the transport of this rank was taken before");
  return std::make_unique<InProcessTransport>(*this, limits_, stations_, rank);
}

}  // namespace kolo
