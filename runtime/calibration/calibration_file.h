#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace kolo {

/// Older costs are measured again. The default is long enough that jobs of one day choose alike, so
/// that equal jobs give equal bits, and short enough that a link that was replaced unnoticed costs
/// at most some hours of worse choices.
inline constexpr std::chrono::hours kCostsExpire{24};

/// The file that keeps link costs between runs, by job shape. It holds one JSON object and is
/// replaced as a whole, so that a reader never sees a partial file:
///
///   {"kolo": VERSION,
///    "shapes": {SHAPE: {"link_costs": TEXT, "measured_at": SECONDS, "confirmed": BOOL}}}
///
/// SECONDS count from 1970. Costs are confirmed once two jobs in a row have measured them, because
/// costs measured on a busy machine would mislead the jobs of a day. A file that is missing,
/// damaged or of another version counts as empty; damage and another version are logged. A path to
/// anything else (another file, a directory, a device) counts as empty, too, and is never written
/// to. A file that cannot be written is logged, which is not an error.
///
/// Threads: one; several threads and processes may write at once, and the last one wins.
class CalibrationFile {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// If `path` is empty, nothing is saved. `shape` names the job; see `job_shape`.
  CalibrationFile(std::string path, std::string shape);

  /// The confirmed costs, as text for `parse_link_costs`; empty if there are none, if they expired
  /// before `now`, or if they are from after `now`.
  std::optional<std::string> link_costs(Time now) const;
  /// Saves costs measured at `now`. They confirm the saved ones, or replace them if those were
  /// measured on a busier machine. Removes expired costs of all shapes.
  void remember_link_costs(const std::string& link_costs, Time now);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::string shape_;
};

/// The path that the option names. "auto": kolo/calibration.json below $XDG_CACHE_HOME or ~/.cache,
/// or empty without a home.
std::string calibration_path(const std::string& option);

}  // namespace kolo
