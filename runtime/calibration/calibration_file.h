#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace kolo {

/// Costs that were measured longer ago are measured anew. A documented default: long enough that a
/// day's jobs choose alike, so that equal jobs give equal bits, and short enough that a link that
/// was replaced behind the hosts' backs costs some hours of worse choices at most.
inline constexpr std::chrono::hours kCostsExpire{24};

/// The link costs that are remembered from one run to the next, by job shape. A JSON object in one
/// file, replaced as a whole, so that a reader never sees half of it:
///
///   {"kolo": VERSION,
///    "shapes": {SHAPE: {"link_costs": TEXT, "measured_at": SECONDS, "confirmed": BOOL}}}
///
/// SECONDS count from 1970. Costs are confirmed once two jobs in a row have measured them: those of
/// a busy machine would mislead the jobs of a day. A file that is missing, damaged, or of another
/// version holds nothing; the latter two are logged. A path that leads to something else (another
/// file, a directory, a device) holds nothing either, and is never written to. A file that cannot
/// be written is logged, too, and is no error.
///
/// Threads: one; threads and processes may write at once, the last one wins.
class CalibrationFile {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// `path` empty: remembers nothing. `shape` names the job; see `job_shape`.
  CalibrationFile(std::string path, std::string shape);

  /// The costs, as `parse_link_costs` takes them, if they are confirmed, unless they expired before
  /// `now` or lie after it.
  std::optional<std::string> link_costs(Time now) const;
  /// Costs measured at `now`, which confirm those that are remembered, or replace what they show to
  /// have been measured on a busier machine. Expired ones of all shapes are forgotten.
  void remember_link_costs(const std::string& link_costs, Time now);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::string shape_;
};

/// "auto": kolo/calibration.json below $XDG_CACHE_HOME or ~/.cache; else `option` itself.
/// Empty if there is no home.
std::string calibration_path(const std::string& option);

}  // namespace kolo
