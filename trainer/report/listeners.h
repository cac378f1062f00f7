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

/// The state of training after a step, as it is reported.
struct ProgressReport {
  std::size_t step;
  std::size_t total_steps;
  double seconds;  ///< Training time in seconds, without evaluations.
  double train_loss;
  double lr;
  double gradient_norm;
  double step_ms;
  double rate;           ///< Samples or tokens per second, over all ranks.
  double exposed_share;  ///< Exposed communication as a share of a step's time, 0 to 1.
  double seconds_left;
  std::size_t skipped_steps;  ///< Number of steps skipped so far.
};

/// Receives reports about training. Only one rank has listeners.
///
/// Threads: the training thread. Errors: none; a listener that cannot write logs the error.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;

  /// Called before the first step. `step` is the number of steps taken before the job resumed.
  virtual void begin(std::size_t step) = 0;
  virtual void report(const ProgressReport& report) = 0;
  /// Called during an evaluation, after `done` of `total` batches.
  virtual void evaluating(std::size_t done, std::size_t total) = 0;
  virtual void evaluation(std::size_t step, double loss, const Metric& metric, double value) = 0;
  /// Called with a message for users.
  virtual void note(std::string_view text) = 0;
};

/// Prints progress: a line that is updated in place on a terminal, and aligned lines elsewhere.
class Progress final : public TrainingListener {
 public:
  enum class Style { kTerminal, kLines };

  /// `rate_unit` is what `ProgressReport::rate` counts, such as "tokens". `out` outlives this
  /// object.
  Progress(std::FILE* out, Style style, std::string rate_unit);

  void begin(std::size_t) override {}
  void report(const ProgressReport& report) override;
  void evaluating(std::size_t done, std::size_t total) override;
  void evaluation(std::size_t step, double loss, const Metric& metric, double value) override;
  /// Prints text that later reports do not overwrite.
  void note(std::string_view text) override;

 private:
  std::FILE* out_;
  Style style_;
  std::string rate_unit_;
  bool header_printed_ = false;
  std::chrono::steady_clock::time_point last_line_ = {};  // when an evaluation last printed a line
  bool line_is_open_ = false;  // whether the next note needs a new line first
};

/// stdout alone is not enough, because launchers may give ranks a terminal as stdout even if their
/// own stdout is a file.
Progress::Style progress_style(std::string_view choice, std::FILE* out);

/// A duration as text, such as "45s", "12m05s" or "3h07m".
std::string format_seconds(double seconds);

/// A TensorBoard event file of numbers by name and step. It is open only during a `write`.
///
/// Threads: one.
/// Errors:  KoloError(kIo) naming path and cause.
/// Source:  tensorflow/core/util/event.proto, framework/summary.proto; frames as in TFRecord.
class EventFile {
 public:
  /// Chooses the name of a new file in `folder`, without writing it. TensorBoard shows its values
  /// in place of those of earlier files, from step `first_step` on.
  EventFile(const std::filesystem::path& folder, std::size_t first_step);

  void add(std::size_t step, std::string_view name, double value);
  /// Appends all added values to the file, and creates its folder. May be retried after an error.
  void write();

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  std::string pending_;
};

/// Records a run in the run's folder:
///
///     config.toml      the options of the run
///     metrics.jsonl    a line per report and per evaluation
///     tokenizer/       the vocabularies of the run's data
///     tensorboard/     the same numbers for TensorBoard, one file per start or resume
///
/// A resumed run replaces the records of later steps. If a file cannot be written, this is logged
/// once; training continues, and the next write tries again.
class RunLog final : public TrainingListener {
 public:
  /// Writes nothing yet. `config` is the text for config.toml.
  RunLog(std::filesystem::path folder, std::string config, TextFiles vocabularies = {});

  void begin(std::size_t step) override;
  void report(const ProgressReport& report) override;
  void evaluating(std::size_t, std::size_t) override {}
  void evaluation(std::size_t step, double loss, const Metric& metric, double value) override;
  void note(std::string_view) override {}
  /// Tries to write all pending records. Returns whether the files are complete.
  bool is_complete();

 private:
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  bool write_all();

  std::filesystem::path folder_;
  std::string config_;
  TextFiles vocabularies_;
  std::size_t first_step_ = 0;
  bool has_failed_ = false;
  bool has_begun_ = false;  ///< Whether config.toml, vocabularies and earlier records were written.
  std::string pending_lines_;
  std::optional<EventFile> events_;
};

}  // namespace kolo::trainer
