#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/report/event_file.h"
#include "trainer/report/training_listener.h"
#include "trainer/text/text_files.h"

namespace kolo::trainer {

/// Keeps the numbers of a run in its folder:
///
///     config.toml      the options it runs with
///     metrics.jsonl    a line per report and per evaluation
///     tokenizer/       the vocabularies of its data
///     tensorboard/     the same for TensorBoard, a file each time the run begins or is resumed
///
/// A resumed run replaces what an earlier one wrote of later steps. That a file cannot be written
/// is logged once; training goes on, and what could not be written is tried again with what
/// follows.
class RunLog final : public TrainingListener {
 public:
  /// Writes nothing yet. `config` is the text of config.toml.
  RunLog(std::filesystem::path folder, std::string config, TextFiles vocabularies = {});

  void begin(std::size_t step) override;
  void report(const ProgressReport& report) override;
  void evaluating(std::size_t, std::size_t) override {}
  void evaluation(std::size_t step, double loss, const Metric& metric, double value) override;
  void note(std::string_view) override {}
  /// Tries again to write what could not be written. Returns whether the files hold everything.
  bool is_complete();

 private:
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  bool write_all();

  std::filesystem::path folder_;
  std::string config_;
  TextFiles vocabularies_;
  std::size_t first_step_ = 0;
  bool has_failed_ = false;
  bool has_begun_ = false;  ///< The files that a run begins with are written.
  std::string pending_lines_;
  std::optional<EventFile> events_;
};

}  // namespace kolo::trainer
