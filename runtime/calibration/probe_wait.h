#pragma once

#include <chrono>
#include <thread>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Microseconds since it was made. `clock` outlives it.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), start_(clock.now()) {}
  double us() const {
    return std::chrono::duration<double, std::micro>(clock_.now() - start_).count();
  }

 private:
  const Clock& clock_;
  const TimePoint start_;
};

/// Waits for peers before there is an engine: spins for about a microsecond, then gives way, since
/// other nodes or programs may share the cores unseen. If ranks of the node are known to share
/// cores it gives way at once.
class ProbeWait {
 public:
  ProbeWait(MessageTransport& transport, std::chrono::milliseconds timeout, bool gives_way)
      : transport_(transport), timeout_(timeout), gives_way_(gives_way) {}

  /// Errors: that of the transport; KoloError(kTimeout).
  template <typename Condition>
  void until(Condition condition) {
    const auto start = std::chrono::steady_clock::now();
    for (unsigned turn = 1; !condition(); ++turn) {
      if (gives_way_ || turn > kSpinTurns) std::this_thread::yield();
      if (turn % kTurnsPerLook != 0) continue;
      transport_.poll();
      if (const auto failure = transport_.failure()) throw KoloError(*failure);
      if (std::chrono::steady_clock::now() - start > timeout_) {
        throw KoloError({.code = ErrorCode::kTimeout,
                         .rank = transport_.rank(),
                         .verb = "calibrate",
                         .what = "a peer did not answer while links were measured"});
      }
    }
  }

 private:
  static constexpr unsigned kSpinTurns = 256;
  static constexpr unsigned kTurnsPerLook = 256;

  MessageTransport& transport_;
  const std::chrono::milliseconds timeout_;
  const bool gives_way_;
};

}  // namespace kolo
