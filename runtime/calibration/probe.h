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

/// Flags at the end of a rank's flags that measuring uses up; they are no bucket's.
inline constexpr std::uint32_t kProbeFlags = 2;

/// The limits of measuring.
struct ProbeLimits {
  TransportLimits transport;
  bool shares_cores = false;  ///< With other ranks of this machine, whatever their node.
  std::chrono::milliseconds connect_timeout{60'000};  ///< A peer that is silent so long is lost.
};

/// When measuring ends, on a clock that may be a test's.
struct ProbeTime {
  const Clock& clock;
  TimePoint end;
};

/// Measures inside this rank's node: trips of flags, and passes over its arena by the kernels that
/// reduce buckets, in working sets from 1 to 64 MiB. All ranks of a node call it at once; the clock
/// of the node's first rank decides. There is at least one sample of each kind, except of working
/// sets beyond 1 MiB that would take longer than the time that is left.
///
/// Before:  nothing is in flight. The arena's first bytes are free, and zero where committed.
/// After:   the same; up to 64 MiB for all ranks of the node together are committed.
/// Threads: as the transport.
/// Errors:  KoloError: that of the transport; kTimeout; kResources.
MemorySamples probe_node(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits,
                         const ProbeTime& time);

/// Messages of a stream in flight in each direction: enough to keep any link busy.
inline constexpr std::size_t kStreamWindow = 4;
inline constexpr std::size_t kStreamMessageBytes = std::size_t{32} << 10;
/// Bytes of a stream in each direction after the decision that it ends: those in flight then, and
/// those that the peer sends before it learns of the end.
inline constexpr std::size_t kStreamTailBytes = 2 * kStreamWindow * kStreamMessageBytes;

/// Measures between the leaders of neighbouring nodes, in three rounds. Node k meets node k ^
/// round, so all pairs of nodes 0 to 3, 4 to 7, ... meet, and a node's rate is known unless all
/// three others are slower. In the first round leaders exchange small messages one by one and in
/// bursts; in each, a stream in both directions, and between two nodes another one before the
/// messages. All ranks call it; only the lower one of each pair has samples.
///
/// A stream ends when its tail, at the rate of the last messages, would take the rest of the time.
/// A link that needs longer for the tail than a round has takes that long in each round.
/// Errors: as above.
NetworkSamples probe_network(MessageTransport& transport, const ProcessGrid& grid,
                             const ProbeLimits& limits, const ProbeTime& time);

/// Measures on this core what one step of a schedule costs beside its bytes, in microseconds: a
/// chain of small copies through an executor, for less than a millisecond. Others disturb it in one
/// direction only, so the lower quartile of many runs counts.
/// Before:  nothing is in flight. Threads: as the transport.
double probe_step_us(Transport& transport, const Clock& clock);

struct PrivateReads {
  double call_us = 0, page_us = 0;
};

/// Measures on this core what the system call takes by which a rank reads a peer's private memory,
/// beside its bytes and for each small page: one of this process, which costs as much. Empty where
/// the system forbids it. Threads: any.
std::optional<PrivateReads> probe_private_reads(const Clock& clock);

/// Measures on this core, for some 40 ms, what the elements and the pairs of a top-k step take on
/// one rank, from selection to result. Threads: any.
SelectorCost probe_selector();

/// Microseconds since it was made. `clock` outlives it.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), start_(clock.now()) {}
  double us() const { return to_us(clock_.now() - start_); }

 private:
  const Clock& clock_;
  const TimePoint start_;
};

/// Shares out the time that measuring may take. Each part gets the time that is left divided by the
/// parts that are left, so a part that ends early or late changes that of all later ones alike:
///
///   |--- part 1 ---|--- part 2 ---|--- part 3 ---|      until `end`
///   |-1-|------ part 2 ------|------ part 3 -----|      part 1 ended early
///
/// Threads: one. `clock` outlives it.
class ProbeBudget {
 public:
  ProbeBudget(const Clock& clock, TimePoint end) : clock_(clock), end_(end) {}

  /// Begins the next part, which is one of so many that are left.
  void begin(int parts_left) {
    const TimePoint now = clock_.now();
    part_end_ = now + (end_ - now) / parts_left;
  }

  /// Whether this part has more than `us` left.
  bool affords(double us = 0) const { return us_until(part_end_) > us; }
  /// Whether all parts that are left have more than `us` together.
  bool affords_in_all(double us) const { return us_until(end_) > us; }

 private:
  double us_until(TimePoint time) const { return to_us(time - clock_.now()); }

  const Clock& clock_;
  const TimePoint end_;
  TimePoint part_end_{};
};

/// Waits for peers before there is an engine: polls for about a microsecond, then yields, since
/// other programs may share the cores unseen. Where ranks are known to share cores it yields at
/// once.
class ProbeWait {
 public:
  /// Who polls the transport: the condition, or the wait, for a condition that looks at memory.
  enum class Polls { kCondition, kWait };

  ProbeWait(MessageTransport& transport, std::chrono::milliseconds timeout, bool yields_at_once,
            Polls polls)
      : transport_(transport), timeout_(timeout), yields_at_once_(yields_at_once), polls_(polls) {}

  /// `find_missing` returns a rank that is waited for.
  /// Errors: that of the transport; KoloError(kTimeout) naming that rank. The transport is shut
  ///         down before either is thrown, so that no message is in flight in buffers that the
  ///         exception unwinds.
  template <typename Condition, typename FindMissing>
  void until(const Condition& condition, const FindMissing& find_missing) {
    const auto start = std::chrono::steady_clock::now();
    auto check_at = start + kCheckEvery;
    for (unsigned polls = 1; !condition(); ++polls) {
      if (!yields_at_once_ && polls <= kPollsBeforeYield) continue;
      std::this_thread::yield();
      // By the clock: on a busy machine a yield takes milliseconds.
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

  /// After a rest a transport looks for peers that have ended, which it does rarely otherwise.
  void rest() {
    if (!transport_.arm()) return;
    ::poll(nullptr, 0, kRestMs);
    transport_.disarm();
  }

  static constexpr unsigned kPollsBeforeYield = 256;
  static constexpr Duration kCheckEvery = std::chrono::milliseconds(1);
  /// No sample takes so long.
  static constexpr Duration kWorthMeasuring = std::chrono::milliseconds(100);
  static constexpr int kRestMs = 1;

  MessageTransport& transport_;
  const std::chrono::milliseconds timeout_;
  const bool yields_at_once_;
  const Polls polls_;
};

}  // namespace kolo
