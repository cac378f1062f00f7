#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include <fmt/format.h>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/transport/transport.h"
#include "topology/link_costs.h"
#include "topology/link_fit.h"
#include "topology/process_grid.h"

namespace kolo {

/// Number of flags, at the end of a rank's flags, that measuring uses up and buckets never get.
inline constexpr std::uint32_t kProbeFlags = 2;

/// Limits for measuring.
struct ProbeLimits {
  TransportLimits transport;
  bool shares_cores = false;  ///< Whether ranks of this machine share cores.
  /// A peer counts as lost if it is silent for this long.
  std::chrono::milliseconds connect_timeout{60'000};
};

/// The time at which measuring must end, on `clock`, which tests may replace.
struct ProbeTime {
  const Clock& clock;
  TimePoint end;
};

/// Measures inside this rank's node: round trips of flags, and passes over its arena by the kernels
/// that reduce buckets, in working sets from 1 to 64 MiB. All ranks of a node call it at once; the
/// clock of the node's first rank decides when it ends. There is at least one sample of each kind,
/// except of working sets that are too small to give each rank a part, and of those above 1 MiB for
/// which the time does not suffice.
///
/// Before:  nothing is in flight. The arena's first bytes are free, and zero where committed.
/// After:   as before; up to 64 MiB for all ranks of the node together are committed.
/// Threads: as the transport.
/// Errors:  KoloError of the transport; KoloError(kTimeout, kResources).
MemorySamples probe_node(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits,
                         const ProbeTime& time);

/// Messages of a stream in flight in each direction, enough to keep any link busy.
inline constexpr std::size_t kStreamWindow = 4;
inline constexpr std::size_t kStreamMessageBytes = std::size_t{32} << 10;
/// Bytes of a stream in each direction after one leader has decided to end it: bytes already in
/// flight, and bytes that the peer sends before it gets the decision.
inline constexpr std::size_t kStreamTailBytes = 2 * kStreamWindow * kStreamMessageBytes;

/// Measures between the leaders of neighbouring nodes, in three rounds. Node k is paired with node
/// k ^ round, so all pairs among nodes 0 to 3, 4 to 7, ... are measured. A node's rate is known
/// unless all three other nodes are slower. In the first round leaders exchange small messages, one
/// by one and in bursts; in every round they run a stream in both directions. With only two nodes,
/// another stream precedes the messages. All ranks call it; only the leader of the lower node of
/// each pair gets samples.
///
/// A stream ends when its tail, at the rate of the last messages, would take the remaining time. If
/// the tail of a link takes longer than a round, every round takes that long. Errors: as
/// `probe_node`.
NetworkSamples probe_network(MessageTransport& transport, const ProcessGrid& grid,
                             const ProbeLimits& limits, const ProbeTime& time);

/// Measures on this core the fixed cost of one step of a schedule, in microseconds: runs a chain of
/// small copies through an executor, for less than a millisecond. Disturbances only make a run
/// slower, so the lower quartile of many runs is used.
///
/// Before:  nothing is in flight. Threads: as the transport.
double probe_step_us(Transport& transport, const Clock& clock);

struct PrivateReads {
  double call_us = 0, page_us = 0;
};

/// Measures on this core the system call by which a rank reads a peer's private memory: its fixed
/// cost and its cost per small page. It reads memory of this process, which costs the same. Returns
/// an empty result if the system forbids the call. Threads: any.
std::optional<PrivateReads> probe_private_reads(const Clock& clock);

/// Measures on this core, for about 40 ms, the cost per element and per pair of a top-k step on one
/// rank, from selection to result. Threads: any.
SelectorCost probe_selector();

/// Measures the microseconds since its construction. `clock` must outlive it.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), start_(clock.now()) {}
  double us() const { return to_us(clock_.now() - start_); }

 private:
  const Clock& clock_;
  const TimePoint start_;
};

/// Divides the time for measuring between parts. Each part gets the remaining time divided by the
/// number of remaining parts, so if a part ends early or late, all later parts share the
/// difference:
///
///   |--- part 1 ---|--- part 2 ---|--- part 3 ---|      until `end`
///   |-1-|------ part 2 ------|------ part 3 -----|      part 1 ended early
///
/// Threads: one. `clock` must outlive it.
class ProbeBudget {
 public:
  ProbeBudget(const Clock& clock, TimePoint end) : clock_(clock), end_(end) {}

  /// Begins the next part; `parts_left` includes it.
  void begin(int parts_left) {
    const TimePoint now = clock_.now();
    part_end_ = now + (end_ - now) / parts_left;
  }

  /// Returns whether this part has more than `us` left.
  bool affords(double us = 0) const { return us_until(part_end_) > us; }
  /// Returns whether all remaining parts together have more than `us` left.
  bool affords_in_all(double us) const { return us_until(end_) > us; }

 private:
  double us_until(TimePoint time) const { return to_us(time - clock_.now()); }

  const Clock& clock_;
  const TimePoint end_;
  TimePoint part_end_{};
};

/// Waits for peers before the engine exists: polls for about a microsecond, then yields, because
/// other programs may share the cores. If ranks share cores, it yields at once.
class ProbeWait {
 public:
  /// Whether the condition itself polls the transport, or the wait does, for a condition on memory.
  enum class Polls { kCondition, kWait };

  ProbeWait(MessageTransport& transport, std::chrono::milliseconds timeout, bool yields_at_once,
            Polls polls)
      : transport_(transport), timeout_(timeout), yields_at_once_(yields_at_once), polls_(polls) {}

  /// Waits until `condition()` returns true. `find_missing` returns a rank that has not answered.
  /// Errors: errors of the transport; KoloError(kTimeout), which names that rank. The transport is
  ///         shut down first, so that no message in flight uses buffers that the exception
  ///         destroys.
  template <typename Condition, typename FindMissing>
  void until(const Condition& condition, const FindMissing& find_missing) {
    const auto start = std::chrono::steady_clock::now();
    auto check_at = start + kCheckEvery;
    for (unsigned polls = 1; !condition(); ++polls) {
      if (!yields_at_once_ && polls <= kPollsBeforeYield) continue;
      std::this_thread::yield();
      // Uses the clock, because on a busy machine a yield takes milliseconds.
      const auto now = std::chrono::steady_clock::now();
      if (now < check_at) continue;
      if (polls_ == Polls::kWait) {
        if (now - start >= kWorthMeasuring) rest();
        transport_.poll();
      }
      check_at = std::chrono::steady_clock::now() + kCheckEvery;
      if (const auto failure = transport_.failure()) give_up(*failure);
      if (now - start <= timeout_) continue;
      const int missing = find_missing();
      give_up(
          {.code = ErrorCode::kTimeout,
           .rank = transport_.rank(),
           .peer = missing,
           .verb = "calibrate",
           .what = fmt::format("rank {} did not answer within {} ms", missing, timeout_.count())});
    }
  }

 private:
  [[noreturn]] void give_up(const Error& error) {
    const Error copy = error;
    transport_.shutdown(false);
    throw KoloError(copy);
  }

  /// Sleeps briefly, so that the transport checks for peers that have ended.
  void rest() {
    if (!transport_.arm()) return;
    ::poll(nullptr, 0, kRestMs);
    transport_.disarm();
  }

  static constexpr unsigned kPollsBeforeYield = 256;
  static constexpr Duration kCheckEvery = std::chrono::milliseconds(1);
  /// A wait of this length cannot be a sample, so a rest does not disturb measuring.
  static constexpr Duration kWorthMeasuring = std::chrono::milliseconds(100);
  static constexpr int kRestMs = 1;

  MessageTransport& transport_;
  const std::chrono::milliseconds timeout_;
  const bool yields_at_once_;
  const Polls polls_;
};

}  // namespace kolo
