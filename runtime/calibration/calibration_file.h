#pragma once

#include <optional>
#include <string>

namespace kolo {

/// The link costs that are remembered from one run to the next, by job shape. A JSON object in one
/// file, replaced as a whole, so that a reader never sees half of it:
///
///   {"kolo": VERSION, "shapes": {SHAPE: {"link_costs": TEXT}}}
///
/// A file that is missing, damaged, or of another version holds nothing; the latter two are logged.
/// What does not begin like one (another file, a directory, a device) holds nothing either, and is
/// never written to. Nor is it an error if a file cannot be written: that is logged, too.
///
/// Threads: one; processes may write at once, the last one wins.
class CalibrationFile {
 public:
  /// `path` empty: remembers nothing. `shape` names the job: where it runs and how it is laid out.
  CalibrationFile(std::string path, std::string shape);

  /// As `parse_link_costs` takes them.
  std::optional<std::string> link_costs() const;
  void remember_link_costs(const std::string& link_costs);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::string shape_;
};

/// "auto": kolo/calibration.json below $XDG_CACHE_HOME or ~/.cache; else `option` itself.
/// Empty if there is no home.
std::string calibration_path(const std::string& option);

}  // namespace kolo
