#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/link_probe.h"
#include "runtime/probe_wait.h"

namespace kolo {
namespace {

using std::chrono::steady_clock;

constexpr int kRoundTrips = 20;
constexpr int kBursts = 5;
constexpr int kBurstMessages = 16;
constexpr int kExchangesPerSize = 2;
constexpr std::size_t kFirstExchangeBytes = std::size_t{64} << 10;
constexpr std::size_t kMostExchangeBytes = std::size_t{8} << 20;
/// What the large exchange is to take: long against a burst that a shaped link lets pass at once.
constexpr double kLargeExchangeUs = 15'000;

/// What the asking leader wants next.
struct Request {
  enum class Kind : std::uint32_t { kRoundTrip, kBurst, kExchange, kEnd };
  Kind kind = Kind::kEnd;
  std::uint32_t bytes = 0;  ///< Of an exchange.
};

/// One end of a pair of leaders.
class PairProbe {
 public:
  PairProbe(Transport& transport, int peer, const ProbeLimits& limits)
      : transport_(transport),
        peer_(peer),
        until_(steady_clock::now() + limits.network),
        wait_(transport, limits.connect_timeout, /*gives_way=*/true) {}

  NetworkSamples ask() {
    samples_.burst_messages = kBurstMessages;
    // The first message makes the connection.
    for (int sample = -1; sample < kRoundTrips && (sample <= 0 || in_time()); ++sample) {
      const double us = round_trip({.kind = Request::Kind::kRoundTrip});
      if (sample >= 0) samples_.round_trips_us.push_back(us);
    }
    for (int sample = 0; sample < kBursts && (sample == 0 || in_time()); ++sample) {
      samples_.bursts_us.push_back(round_trip({.kind = Request::Kind::kBurst}));
    }
    exchange_times(kFirstExchangeBytes);
    if (!samples_.exchanges.empty()) {
      const double us = samples_.exchanges.back().us;
      const double bytes = static_cast<double>(kFirstExchangeBytes) * kLargeExchangeUs / us;
      exchange_times(
          std::clamp(static_cast<std::size_t>(bytes), 2 * kFirstExchangeBytes, kMostExchangeBytes));
    }
    send(as_bytes(Request{.kind = Request::Kind::kEnd}));
    return std::move(samples_);
  }

  void answer() {
    for (;;) {
      Request request;
      receive(as_writable_bytes(request));
      if (request.kind == Request::Kind::kEnd) return;
      if (request.kind == Request::Kind::kExchange) {
        reserve(request.bytes);
        send(as_bytes(request));
        swap();
        continue;
      }
      Request rest;
      const int more = request.kind == Request::Kind::kBurst ? kBurstMessages - 1 : 0;
      for (int i = 0; i < more; ++i) receive(as_writable_bytes(rest));
      send(as_bytes(request));
    }
  }

 private:
  bool in_time() const { return steady_clock::now() < until_; }

  static std::span<const std::byte> as_bytes(const Request& request) {
    return std::as_bytes(std::span(&request, 1));
  }
  static std::span<std::byte> as_writable_bytes(Request& request) {
    return std::as_writable_bytes(std::span(&request, 1));
  }

  double round_trip(const Request& request) {
    const Stopwatch watch;
    std::array<Completion, kBurstMessages> sent;
    const std::size_t messages = request.kind == Request::Kind::kBurst ? kBurstMessages : 1;
    for (std::size_t i = 0; i < messages; ++i) start_send(as_bytes(request), sent[i]);
    Request answer;
    receive(as_writable_bytes(answer));
    const double us = watch.us();
    for (std::size_t i = 0; i < messages; ++i) finish(sent[i]);
    return us;
  }

  void exchange_times(std::size_t bytes) {
    for (int sample = 0; sample < kExchangesPerSize && (sample == 0 || in_time()); ++sample) {
      const Request request{.kind = Request::Kind::kExchange,
                            .bytes = static_cast<std::uint32_t>(bytes)};
      reserve(bytes);
      round_trip(request);  // Now the peer has room, too.
      const Stopwatch watch;
      swap();
      samples_.exchanges.push_back({.bytes = static_cast<double>(bytes), .us = watch.us()});
    }
  }

  void reserve(std::size_t bytes) {
    outgoing_.resize(bytes);
    incoming_.resize(bytes);
  }

  /// Sends and receives all that was reserved, at once.
  void swap() {
    Completion sent, received;
    start_receive(incoming_, received);
    start_send(outgoing_, sent);
    finish(received);
    finish(sent);
  }

  void send(std::span<const std::byte> bytes) {
    Completion done;
    start_send(bytes, done);
    finish(done);
  }
  void receive(std::span<std::byte> bytes) {
    Completion done;
    start_receive(bytes, done);
    finish(done);
  }

  // There are no buckets yet whose tags these could be.
  Tag tag(int source, std::uint32_t ordinal) const {
    return {.source = static_cast<std::uint32_t>(source), .ordinal = ordinal};
  }
  void start_send(std::span<const std::byte> bytes, Completion& done) {
    transport_.isend(peer_, tag(transport_.rank(), sent_++), bytes, done);
  }
  void start_receive(std::span<std::byte> bytes, Completion& done) {
    transport_.irecv(peer_, tag(peer_, received_++), bytes, done);
  }
  void finish(const Completion& done) {
    wait_.until([&] {
      if (done.state == Completion::State::kPending) transport_.poll();
      return done.state != Completion::State::kPending;
    });
  }

  Transport& transport_;
  const int peer_;
  const steady_clock::time_point until_;
  ProbeWait wait_;
  std::uint32_t sent_ = 0, received_ = 0;
  std::vector<std::byte> outgoing_, incoming_;
  NetworkSamples samples_;
};

}  // namespace

NetworkSamples probe_network(Transport& transport, const ProcessGrid& grid,
                             const ProbeLimits& limits) {
  const int node = grid.node(transport.rank());
  const int neighbour = node ^ 1;
  if (neighbour >= grid.num_nodes() || grid.leader(node) != transport.rank()) return {};
  PairProbe probe(transport, grid.leader(neighbour), limits);
  if (node < neighbour) return probe.ask();
  probe.answer();
  return {};
}

}  // namespace kolo
