#include "trainer/report/run_log.h"

#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/output_file.h"
#include "trainer/checkpoint/stored_vocabularies.h"

namespace kolo::trainer {
namespace {

using Json = nlohmann::ordered_json;

/// Lines of steps up to `step`; what a job that was killed left half written is dropped.
std::string lines_until(const std::filesystem::path& file, std::size_t step) {
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", step + 1) <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

RunLog::RunLog(std::filesystem::path folder, std::string config, TextFiles vocabularies)
    : folder_(std::move(folder)),
      config_(std::move(config)),
      vocabularies_(std::move(vocabularies)) {}

void RunLog::begin(std::size_t step) {
  first_step_ = step;
  events_.emplace(folder_ / "tensorboard", step + 1);
  write_all();
}

void RunLog::report(const ProgressReport& r) {
  pending_lines_ += Json({{"step", r.step},
                          {"seconds", r.seconds},
                          {"train_loss", r.train_loss},
                          {"lr", r.lr},
                          {"gradient_norm", r.gradient_norm},
                          {"step_ms", r.step_ms},
                          {"rate", r.rate},
                          {"exposed_share", r.exposed_share},
                          {"skipped_steps", r.skipped_steps}})
                        .dump() +
                    "\n";
  for (const auto& [name, value] : {std::pair{"loss/training", r.train_loss},
                                    {"step/learning_rate", r.lr},
                                    {"step/gradient_norm", r.gradient_norm},
                                    {"step/ms", r.step_ms},
                                    {"step/exposed_share", r.exposed_share},
                                    {"step/rate", r.rate}}) {
    events_->add(r.step, name, value);
  }
  write_all();
}

void RunLog::evaluation(std::size_t step, double loss, const Metric& metric, double value) {
  pending_lines_ +=
      Json({{"step", step}, {"eval_loss", loss}, {"eval_" + metric.name, value}}).dump() + "\n";
  events_->add(step, "loss/held_out", loss);
  events_->add(step, metric.name + "/held_out", value);
  write_all();
}

bool RunLog::is_complete() { return write_all(); }

/// What could not be written stays pending.
bool RunLog::write_all() {
  try {
    if (!has_begun_) {
      std::error_code ignored;  // writing a file says it
      std::filesystem::create_directories(folder_, ignored);
      write_file(folder_ / "config.toml", config_);
      if (!vocabularies_.empty()) write_text_files(vocabularies_, folder_ / kTokenizerFolder);
      write_file(metrics(), lines_until(metrics(), first_step_));
      has_begun_ = true;
    }
    append_file(metrics(), pending_lines_);
    pending_lines_.clear();
    events_->write();
    return true;
  } catch (const KoloError& error) {
    if (!std::exchange(has_failed_, true)) {
      log::warn(fmt::format("{}; training goes on, and numbers of this run may be missing",
                            error.error().what));
    }
    return false;
  }
}

}  // namespace kolo::trainer
