#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "comm/transport/transport.h"

namespace kolo::test {

/// A full-duplex link. A token bucket limits the rate of each direction.
struct VirtualLink {
  double bytes_per_us = 100;
  double burst_bytes = 0;  ///< Bytes that the bucket saves up while idle; they pass at once.
  double latency_us = 20;  ///< Least latency. Each message takes up to twice that, at random.
};

/// Passes messages between blocking ranks in virtual time. Time does not advance while any rank has
/// work, and jumps to the next delivery when all ranks wait. Each rank has a thread and a link. The
/// threads run one at a time, round-robin, so equal seeds give equal runs.
class VirtualNetwork final : public Clock {
 public:
  VirtualNetwork(std::vector<VirtualLink> links, std::uint64_t seed)
      : links_(std::move(links)), ports_(links_.size()), random_(seed) {
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      ports_[rank].out_bytes = ports_[rank].in_bytes = links_[rank].burst_bytes;
    }
  }

  TimePoint now() const override {
    const MutexLock lock(mutex_);
    return TimePoint(Duration(static_cast<std::int64_t>(us_ * 1e3)));
  }
  std::unique_ptr<MessageTransport> transport(int rank);

 private:
  class End;
  struct Message {
    double due_us;
    std::vector<std::byte> bytes;
  };
  struct Receive {
    std::span<std::byte> into;
    Completion* done;
  };
  using Place = std::pair<int, std::uint64_t>;  // source and tag
  struct Port {
    std::map<Place, Message> coming;
    std::map<Place, Receive> posted;
    double out_us = 0, in_us = 0;        // time of the last update of the direction's token bucket
    double out_bytes = 0, in_bytes = 0;  // tokens at that time; negative while it is busy
    bool left = false;
  };

  /// Returns the time at which `bytes` that enter a direction of a link at `at_us` have passed it.
  static double pass(const VirtualLink& link, double& since_us, double& saved, double at_us,
                     double bytes) {
    const double rested = std::max(0.0, at_us - since_us);
    saved = std::min(link.burst_bytes, saved + rested * link.bytes_per_us) - bytes;
    since_us = std::max(since_us, at_us);
    return since_us + std::max(0.0, -saved) / link.bytes_per_us;
  }

  void send(int from, int to, std::uint64_t tag, std::span<const std::byte> bytes)
      KOLO_REQUIRES(mutex_) {
    Port &source = ports_[static_cast<std::size_t>(from)],
         &target = ports_[static_cast<std::size_t>(to)];
    const VirtualLink& out = links_[static_cast<std::size_t>(from)];
    const auto size = static_cast<double>(bytes.size());
    const double sent_us = pass(out, source.out_us, source.out_bytes, us_, size);
    const double come_us =
        pass(links_[static_cast<std::size_t>(to)], target.in_us, target.in_bytes, sent_us, size);
    const double way_us = out.latency_us * (1 + std::uniform_real_distribution<>(0, 1)(random_));
    target.coming[{from, tag}] = {come_us + way_us, {bytes.begin(), bytes.end()}};
  }

  /// Delivers the messages that are due to `rank`. Returns true if there were any.
  bool deliver(int rank) KOLO_REQUIRES(mutex_) {
    Port& port = ports_[static_cast<std::size_t>(rank)];
    bool any = false;
    for (auto it = port.posted.begin(); it != port.posted.end();) {
      const auto message = port.coming.find(it->first);
      if (message == port.coming.end() || message->second.due_us > us_) {
        ++it;
        continue;
      }
      std::memcpy(it->second.into.data(), message->second.bytes.data(),
                  message->second.bytes.size());
      it->second.done->bytes = message->second.bytes.size();
      it->second.done->state = Completion::State::kDone;
      port.coming.erase(message);
      it = port.posted.erase(it);
      any = true;
    }
    return any;
  }

  void wait_for_turn(MutexLock& lock, int rank) KOLO_REQUIRES(mutex_) {
    turned_.wait(lock, [&]() KOLO_REQUIRES(mutex_) { return turn_ == rank; });
  }

  void give_turn(int rank) KOLO_REQUIRES(mutex_) {
    const int size = static_cast<int>(ports_.size());
    for (int i = 1; i <= size; ++i) {
      turn_ = (rank + i) % size;
      if (!ports_[static_cast<std::size_t>(turn_)].left) break;
    }
    turned_.notify_all();
  }

  /// Advances time to the next delivery. Called when all ranks wait.
  void move_on() KOLO_REQUIRES(mutex_) {
    double next_us = -1;
    for (const Port& port : ports_) {
      for (const auto& [place, message] : port.coming) {
        const bool is_next = message.due_us > us_ && (next_us < 0 || message.due_us < next_us);
        if (port.posted.contains(place) && is_next) next_us = message.due_us;
      }
    }
    if (next_us < 0) throw std::runtime_error("all ranks wait, and nothing is under way");
    us_ = next_us;
    idle_polls_ = 0;
  }

  const std::vector<VirtualLink> links_;
  mutable Mutex mutex_;
  std::vector<Port> ports_ KOLO_GUARDED_BY(mutex_);
  std::mt19937_64 random_ KOLO_GUARDED_BY(mutex_);
  ConditionVariable turned_;
  int turn_ KOLO_GUARDED_BY(mutex_) = 0;
  std::size_t idle_polls_ KOLO_GUARDED_BY(mutex_) = 0;  // consecutive
  double us_ KOLO_GUARDED_BY(mutex_) = 0;
};

/// The transport of one rank. A poll that delivers nothing lets the other ranks run.
class VirtualNetwork::End final : public MessageTransport {
 public:
  End(VirtualNetwork& network, int rank) : network_(network), rank_(rank) {
    MutexLock lock(network_.mutex_);
    network_.wait_for_turn(lock, rank_);
  }
  ~End() override {
    const MutexLock lock(network_.mutex_);
    network_.ports_[static_cast<std::size_t>(rank_)].left = true;
    network_.idle_polls_ = 0;
    network_.give_turn(rank_);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(network_.links_.size()); }
  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    const MutexLock lock(network_.mutex_);
    network_.send(rank_, peer, pack(tag), data);
    network_.idle_polls_ = 0;
    done.state = Completion::State::kDone;
  }
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    const MutexLock lock(network_.mutex_);
    done.state = Completion::State::kPending;
    network_.ports_[static_cast<std::size_t>(rank_)].posted[{peer, pack(tag)}] = {data, &done};
  }
  bool poll() override {
    MutexLock lock(network_.mutex_);
    if (network_.deliver(rank_)) {
      network_.idle_polls_ = 0;
      return true;
    }
    if (++network_.idle_polls_ > network_.ports_.size()) network_.move_on();
    network_.give_turn(rank_);
    network_.wait_for_turn(lock, rank_);
    return network_.deliver(rank_);
  }

  void abandon(const Tag&) override {}
  void send_control(int, std::span<const std::byte>) override { refuse(); }
  bool receive_control(ControlFrame&) override { return false; }
  bool arm() override { return refuse(); }
  void disarm() override { refuse(); }
  std::vector<int> wake_fds() const override { return {}; }
  std::optional<Error> failure() const override { return std::nullopt; }
  void say_goodbye() override {}
  void shutdown(bool) override {}
  TrafficCounters traffic(int) const override { return {}; }

 private:
  [[noreturn]] static bool refuse() { throw std::logic_error("nobody sleeps in virtual time"); }

  VirtualNetwork& network_;
  const int rank_;
};

inline std::unique_ptr<MessageTransport> VirtualNetwork::transport(int rank) {
  return std::make_unique<End>(*this, rank);
}

}  // namespace kolo::test
