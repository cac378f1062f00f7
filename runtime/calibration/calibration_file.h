#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/algorithms/tuning.h"

namespace kolo {

/// Age after which saved costs are measured again. It is long enough that equal jobs of one day
/// make equal choices and give equal bits, and short enough that after a change of a link the
/// choices are worse for some hours at most.
inline constexpr std::chrono::hours kCostsExpire{24};
/// Age after which tuned choices are ignored, because drivers and kernels change.
inline constexpr std::chrono::days kTuningExpires{90};

/// Converts choices to JSON and back; an empty text has none. Values have the limits of options.
/// Choices of algorithms that do not exist are left out.
/// Errors: a std::exception that says what is wrong.
std::string to_text(const Tuning& tuning);
Tuning parse_tuning(const std::string& text);

/// The file that keeps link costs and tuned choices between runs, by job shape. It contains one
/// JSON object. Writers replace the whole file, so readers never see a partial one:
///
///   {"kolo": VERSION,
///    "shapes": {SHAPE: {"link_costs": TEXT, "measured_at": SECONDS, "confirmed": BOOL}},
///    "tuned": {SHAPE: {"choices": [...], "measured_at": SECONDS}}}
///
/// SECONDS count from 1970. Costs are confirmed once two jobs in a row have measured them; costs
/// measured on a busy machine would otherwise mislead all jobs of a day. A file that is missing,
/// damaged or of another version counts as empty; damage and another version are logged. If the
/// path is another kind of file, a directory or a device, it counts as empty, too, and is never
/// written to. If the file cannot be written, that is logged and is no error.
///
/// Threads: one per object. Several processes may write the file at once; the last one wins.
class CalibrationFile {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// If `path` is empty, nothing is saved. `shape` names the job; see `job_shape`.
  CalibrationFile(std::string path, std::string shape);

  /// Returns the confirmed costs, as text for `parse_link_costs`; empty if there are none, or if
  /// they have expired at `now` or are later than `now`.
  std::optional<std::string> link_costs(Time now) const;
  /// Saves costs measured at `now`. If saved costs of this shape agree, the costs are confirmed.
  /// For each cost the less disturbed value is kept. Removes expired costs of all shapes.
  void remember_link_costs(const std::string& link_costs, Time now);

  /// Returns the tuned choices as text for `parse_tuning`; empty if there are none, or if they have
  /// expired at `now` or are later than `now`. Says in the log why it ignores choices.
  std::string tuning(Time now) const;
  /// Checks that choices can be saved, before they are measured. Errors: KoloError(kIo).
  void check_writable() const;
  /// Replaces the tuned choices of this shape by choices measured at `now`. Errors: KoloError(kIo).
  void remember_tuning(const Tuning& tuning, Time now);

  const std::string& path() const { return path_; }
  const std::string& shape() const { return shape_; }

 private:
  const std::string path_;
  const std::string shape_;
};

/// Returns the path for the option's value. "auto" gives kolo/calibration.json below
/// $XDG_CACHE_HOME or ~/.cache, or an empty path if neither variable XDG_CACHE_HOME nor HOME is
/// set.
std::string calibration_path(const std::string& option);

}  // namespace kolo
