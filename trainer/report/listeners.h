#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/loss/loss.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// The state of training after some steps.
struct ProgressReport {
  std::size_t step;
  std::size_t total_steps;
  double seconds;  ///< Time since training began, without evaluation.
  double train_loss;
  double lr;
  double gradient_norm;
  double step_ms;
  double rate;           ///< Samples or tokens per second of all ranks.
  double exposed_share;  ///< Share of a step's time, 0 … 1.
  double seconds_left;
  std::size_t skipped_steps;  ///< Skipped steps so far.
};

/// Receives news of the training. Exists on one rank only.
///
/// Threads: the training thread. Errors: none; a listener that cannot write reports that itself.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;

  /// Called before the first step, with the number of steps that the job had taken before it
  /// resumed.
  virtual void begin(std::size_t step) = 0;
  virtual void report(const ProgressReport& report) = 0;
  /// During an evaluation, after `done` of `total` batches.
  virtual void evaluating(std::size_t done, std::size_t total) = 0;
  virtual void evaluation(std::size_t step, double loss, const Metric& metric, double value) = 0;
  /// A message for people.
  virtual void note(std::string_view text) = 0;
};

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
  /// Prints text that later lines do not overwrite.
  void note(std::string_view text) override;

 private:
  std::FILE* out_;
  Style style_;
  std::string rate_unit_;
  bool header_printed_ = false;
  std::chrono::steady_clock::time_point last_line_ = {};  // of an evaluation
  bool line_is_open_ = false;  // whether a line in place is open, which the next note must not
                               // overwrite
};

/// Parses "terminal", "lines" or "auto". "auto" updates one line in place if both `out` and stderr
/// are terminals. stdout alone does not tell: launchers give their ranks a terminal for stdout,
/// though not for stderr, even when their own stdout is a file.
Progress::Style progress_style(std::string_view choice, std::FILE* out);

/// "45s", "12m05s", "3h07m".
std::string format_seconds(double seconds);

/// A TensorBoard event file: numbers by name and step. It is open only while it is written.
///
/// Threads: one.
/// Errors:  KoloError(kIo) naming path and cause.
/// Source:  tensorflow/core/util/event.proto, framework/summary.proto; TFRecord's frames.
class EventFile {
 public:
  /// Names a new file in `folder`. For TensorBoard it overrides values of earlier files from step
  /// `first_step` on. Nothing is written yet.
  EventFile(const std::filesystem::path& folder, std::size_t first_step);

  void add(std::size_t step, std::string_view name, double value);
  /// Appends what was added to the file, and creates the folder. After an error, the next call
  /// retries.
  void write();

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  std::string pending_;
};

/// Keeps a record of a run in its folder:
///
///     config.toml      the options it runs with
///     metrics.jsonl    a line per report and per evaluation
///     tokenizer/       the vocabularies of its data
///     tensorboard/     these numbers for TensorBoard, one file per start or resume
///
/// A resumed run replaces records of later steps from an earlier run. A file that cannot be written
/// is logged once; training goes on, and the next write retries.
class RunLog final : public TrainingListener {
 public:
  /// Writes nothing yet. `config` is the text of config.toml.
  RunLog(std::filesystem::path folder, std::string config, TextFiles vocabularies = {});

  void begin(std::size_t step) override;
  void report(const ProgressReport& report) override;
  void evaluating(std::size_t, std::size_t) override {}
  void evaluation(std::size_t step, double loss, const Metric& metric, double value) override;
  void note(std::string_view) override {}
  /// Retries what could not be written. Returns whether the files are complete.
  bool is_complete();

 private:
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  bool write_all();

  std::filesystem::path folder_;
  std::string config_;
  TextFiles vocabularies_;
  std::size_t first_step_ = 0;
  bool has_failed_ = false;
  bool has_begun_ = false;  ///< Whether the files written at the beginning of a run are complete.
  std::string pending_lines_;
  std::optional<EventFile> events_;
};

}  // namespace kolo::trainer
