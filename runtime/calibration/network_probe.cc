#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/calibration/probe.h"

namespace kolo {
namespace {

constexpr int kRoundTripsPerBurst = 5;
constexpr int kBurstMessages = 16;
/// First byte of a stream's message.
constexpr std::byte kMore{0}, kLast{1};

/// Number of rounds in which pairs of nodes are measured.
constexpr int kPairRounds = 3;

/// Returns the predicted time of a stream's tail at the rate of the last window, or of all bytes so
/// far if they are less than a window.
double tail_us(const std::vector<NetworkSamples::Arrival>& arrivals) {
  const NetworkSamples::Arrival last = arrivals.back();
  const NetworkSamples::Arrival before = arrivals.size() > kStreamWindow
                                             ? arrivals[arrivals.size() - 1 - kStreamWindow]
                                             : NetworkSamples::Arrival{};
  return (last.us - before.us) / (last.bytes - before.bytes) * kStreamTailBytes;
}

/// The next request of the asking leader.
enum class Request : std::uint32_t { kRoundTrip, kBurst, kStream, kEnd };

/// One leader's side of a pair. The asking leader decides how long each measurement lasts.
class PairProbe {
 public:
  PairProbe(MessageTransport& transport, int peer, const Clock& clock,
            std::chrono::milliseconds connect_timeout)
      : transport_(transport),
        peer_(peer),
        clock_(clock),
        wait_(transport, connect_timeout, /*yields_at_once=*/true, ProbeWait::Polls::kCondition) {}

  /// Connects, and waits until the neighbour answers: if ranks outnumber cores, it may still be
  /// measuring its own memory for tens of milliseconds.
  void meet() {
    round_trip(Request::kRoundTrip);
    end();
  }

  /// Measures round trips and bursts in alternation, so that another program that takes a core for
  /// some milliseconds disturbs only a part of each kind.
  void ask_latencies(const ProbeBudget& budget, NetworkSamples& samples) {
    samples.burst_messages = kBurstMessages;
    do {
      for (int i = 0; i == 0 || (i < kRoundTripsPerBurst && budget.affords()); ++i) {
        samples.round_trips_us.push_back(round_trip(Request::kRoundTrip));
      }
      samples.bursts_us.push_back(round_trip(Request::kBurst));
    } while (budget.affords());
  }

  /// Measures a stream in both directions: the peer answers each message with one of equal length.
  std::vector<NetworkSamples::Arrival> ask_stream(const ProbeBudget& budget) {
    round_trip(Request::kStream);
    return stream([&](const auto& arrivals) { return budget.affords(tail_us(arrivals)); });
  }

  void end() { send(as_bytes(Request::kEnd)); }

  void answer() {
    for (;;) {
      Request request{};
      receive(as_writable_bytes(request));
      if (request == Request::kEnd) return;
      Request rest{};
      const int more = request == Request::kBurst ? kBurstMessages - 1 : 0;
      for (int i = 0; i < more; ++i) receive(as_writable_bytes(rest));
      send(as_bytes(request));
      if (request == Request::kStream) stream([](const auto&) { return true; });
    }
  }

 private:
  static std::span<const std::byte> as_bytes(const Request& request) {
    return std::as_bytes(std::span(&request, 1));
  }
  static std::span<std::byte> as_writable_bytes(Request& request) {
    return std::as_writable_bytes(std::span(&request, 1));
  }

  double round_trip(Request request) {
    const Stopwatch watch(clock_);
    std::array<Completion, kBurstMessages> sent;
    const std::size_t messages = request == Request::kBurst ? kBurstMessages : 1;
    for (std::size_t i = 0; i < messages; ++i) start_send(as_bytes(request), sent[i]);
    Request answer{};
    receive(as_writable_bytes(answer));
    const double us = watch.us();
    for (std::size_t i = 0; i < messages; ++i) finish(sent[i]);
    return us;
  }

  /// Both ends send a window of messages, and then one message for each message received. Once
  /// `go_on` returns false at one end, that end marks its next window of messages as the last:
  ///
  ///   this end   0 1 2 3 | 4 5 | 6 7 8 9      a window of 4; it ended after message 1 was received
  ///   the peer   0 1 2 3 | 4 5 | 6 7 8 9      answered 2 to 5; message 6 told it of the end
  template <typename Condition>
  std::vector<NetworkSamples::Arrival> stream(Condition go_on) {
    struct Slot {
      std::vector<std::byte> bytes;
      Completion done = {};
    };
    std::array<Slot, kStreamWindow> out, in;
    for (Slot& slot : out) slot.bytes.assign(kStreamMessageBytes, kMore);
    for (Slot& slot : in) slot.bytes.resize(kStreamMessageBytes);
    std::vector<NetworkSamples::Arrival> arrivals;
    std::optional<std::size_t> messages;  // total, once known
    const Stopwatch watch(clock_);
    for (std::size_t i = 0; i < kStreamWindow; ++i) {
      start_receive(in[i].bytes, in[i].done);
      start_send(out[i].bytes, out[i].done);
    }
    for (std::size_t i = 0; i < messages.value_or(i + 1); ++i) {
      Slot &came = in[i % kStreamWindow], &goes = out[i % kStreamWindow];
      finish(came.done);
      arrivals.push_back(
          {.bytes = static_cast<double>((i + 1) * kStreamMessageBytes), .us = watch.us()});
      if (!messages && came.bytes.front() == kLast) messages = i + kStreamWindow;
      if (!messages && !go_on(arrivals)) messages = i + 2 * kStreamWindow;
      if (messages && i + kStreamWindow >= *messages) continue;
      finish(goes.done);
      goes.bytes.front() = messages ? kLast : kMore;
      start_receive(came.bytes, came.done);
      start_send(goes.bytes, goes.done);
    }
    for (const Slot& slot : out) finish(slot.done);
    return arrivals;
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

  // No bucket exists yet, so these tags are free.
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
    wait_.until(
        [&] {
          if (done.state == Completion::State::kPending) transport_.poll();
          return done.state != Completion::State::kPending;
        },
        [&] { return peer_; });
  }

  MessageTransport& transport_;
  const int peer_;
  const Clock& clock_;
  ProbeWait wait_;
  std::uint32_t sent_ = 0, received_ = 0;
};

}  // namespace

NetworkSamples probe_network(MessageTransport& transport, const ProcessGrid& grid,
                             const ProbeLimits& limits, const ProbeTime& time) {
  NetworkSamples samples;
  const int node = grid.node(transport.rank());
  if (grid.leader(node) != transport.rank()) return samples;
  std::vector<std::pair<int, PairProbe>> pairs;  // by round
  for (int round = 1; round <= kPairRounds; ++round) {
    const int neighbour = node ^ round;
    if (neighbour >= grid.num_nodes()) continue;
    pairs.emplace_back(neighbour, PairProbe(transport, grid.leader(neighbour), time.clock,
                                            limits.connect_timeout));
  }
  const TimePoint begin = time.clock.now();
  for (auto& [neighbour, pair] : pairs) {
    if (neighbour < node) {
      pair.answer();
    } else {
      pair.meet();
    }
  }
  // On a busy machine connecting may take as long as measuring. The job needs the connections
  // anyway, so their time does not count.
  ProbeBudget budget(time.clock, time.end + (time.clock.now() - begin));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    auto& [neighbour, pair] = pairs[i];
    if (neighbour < node) {
      pair.answer();
      continue;
    }
    const int streams_left = static_cast<int>(pairs.size() - i);
    // Latencies are measured in the first round: later, neighbours may still be busy.
    if (i == 0) {
      // A rate-limited link is fast in a first burst, and again after a pause. With two nodes no
      // other pair shows the lower rate, so one stream is measured before the latencies and one
      // after. While latencies are measured, the link recovers its burst.
      if (grid.num_nodes() == 2) {
        budget.begin(3);
        samples.streams.push_back({.node = neighbour, .arrivals = pair.ask_stream(budget)});
      }
      budget.begin(streams_left + 1);
      pair.ask_latencies(budget, samples);
    }
    budget.begin(streams_left);
    samples.streams.push_back({.node = neighbour, .arrivals = pair.ask_stream(budget)});
    pair.end();
  }
  return samples;
}

}  // namespace kolo
