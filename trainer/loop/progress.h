#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "trainer/loss/loss.h"

namespace kolo::trainer {

/// The state of training after some steps.
struct ProgressReport {
  std::size_t step;
  std::size_t total_steps;
  double train_loss;
  double lr;
  double gradient_norm;
  double step_ms;
  double rate;           ///< Samples or tokens per second of all ranks.
  double exposed_share;  ///< Share of a step's time, 0 … 1.
  double seconds_left;
  std::size_t skipped_steps;  ///< Skipped steps so far.
};

/// Reports progress to a person: one line, updated in place, on a terminal; plain aligned lines
/// elsewhere. Exists on one rank only.
class Progress {
 public:
  enum class Style { kTerminal, kLines };

  /// `rate_unit` is the unit that `ProgressReport::rate` counts. `out` outlives it.
  Progress(std::FILE* out, Style style, std::string rate_unit);

  void report(const ProgressReport& report);
  void evaluation(std::size_t step, double loss, const Metric& metric, double value);
  /// Prints text that stays.
  void note(std::string_view text);

 private:
  std::FILE* out_;
  Style style_;
  std::string rate_unit_;
  bool header_printed_ = false;
  bool line_is_open_ = false;  // a line in place that the next note must not overwrite
};

/// "terminal" and "lines" as they say; "auto" updates one line in place if both `out` and stderr
/// are terminals. Launchers give their ranks a terminal for stdout even when their own is a file,
/// but not for stderr.
Progress::Style progress_style(std::string_view choice, std::FILE* out);

/// "45s", "12m05s", "3h07m".
std::string format_seconds(double seconds);

}  // namespace kolo::trainer
