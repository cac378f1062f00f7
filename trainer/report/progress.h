#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "trainer/report/training_listener.h"

namespace kolo::trainer {

/// Reports progress to a person: one line, updated in place, on a terminal; plain aligned lines
/// elsewhere.
class Progress final : public TrainingListener {
 public:
  enum class Style { kTerminal, kLines };

  /// `rate_unit` is the unit that `ProgressReport::rate` counts. `out` outlives it.
  Progress(std::FILE* out, Style style, std::string rate_unit);

  void begin(std::size_t) override {}
  void report(const ProgressReport& report) override;
  void evaluating(std::size_t done, std::size_t total) override;
  void evaluation(std::size_t step, double loss, const Metric& metric, double value) override;
  /// Prints text that stays.
  void note(std::string_view text) override;

 private:
  std::FILE* out_;
  Style style_;
  std::string rate_unit_;
  bool header_printed_ = false;
  std::chrono::steady_clock::time_point last_line_ = {};  // of an evaluation
  bool line_is_open_ = false;  // a line in place that the next note must not overwrite
};

/// "terminal" and "lines" as they say; "auto" updates one line in place if both `out` and stderr
/// are terminals. Launchers give their ranks a terminal for stdout even when their own is a file,
/// but not for stderr.
Progress::Style progress_style(std::string_view choice, std::FILE* out);

/// "45s", "12m05s", "3h07m".
std::string format_seconds(double seconds);

}  // namespace kolo::trainer
