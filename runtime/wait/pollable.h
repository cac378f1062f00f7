#pragma once

#include "comm/base/error.h"
#include "runtime/wait/pulse.h"

namespace kolo {

/// What a driver drives: the engines of a rank.
/// Threads: the driver's, but for `has_submissions`, which any may ask.
class Pollable {
 public:
  virtual ~Pollable() = default;

  /// Moves whatever can be moved, and never blocks. Returns whether anything moved.
  virtual bool poll() noexcept = 0;
  /// Whether users' threads have submitted anything since the last poll.
  virtual bool has_submissions() const = 0;
  /// Whether nothing is in flight.
  virtual bool idle() const = 0;
  /// Whether a device works, which sends no wake-ups.
  virtual bool device_busy() const = 0;
  /// Leaves the job at once, with this error.
  virtual void abort(Error error) = 0;
  /// Ends the job with the error that is being handled, which was thrown in `verb`.
  virtual void fail_with_exception(EngineVerb verb) noexcept = 0;
  /// Whether the job has ended.
  virtual bool ended() const = 0;
  /// Shows the verb that the driver is in; null if nobody looks.
  virtual Pulse* pulse() const = 0;
};

}  // namespace kolo
