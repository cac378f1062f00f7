#pragma once

#include <algorithm>
#include <limits>

namespace kolo {

/// One direction of a simulated link: passes one message at a time at its rate, plus as many bytes
/// at once as it saved up while idle.
///
/// Units: microseconds, bytes, bytes per microsecond. Threads: one. Times never fall from call to
/// call.
class SimulatedLink {
 public:
  SimulatedLink(double bytes_per_us, double burst_bytes)
      : bytes_per_us_(bytes_per_us), burst_us_(burst_bytes / bytes_per_us) {}

  /// The time at which a message has passed that starts now, or after the messages before it.
  double pass(double now, double bytes) {
    paid_us_ = std::max(now - burst_us_, paid_us_) + bytes / bytes_per_us_;
    return std::max(now, paid_us_);
  }
  double free_us(double now) const { return std::max(now, paid_us_); }

 private:
  double bytes_per_us_, burst_us_;
  double paid_us_ = -std::numeric_limits<double>::infinity();
};

}  // namespace kolo
