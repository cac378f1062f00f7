#include "trainer/loop/run_options.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/config_error.h"
#include "trainer/loop/compression_rules.h"

namespace kolo::trainer {

JobIdentity job_identity(const Config& config, const Runtime& runtime, const Task& task) {
  const Options& options = runtime.options();
  const std::size_t samples = task.data.train->size();
  JobIdentity job{.model = config.model, .settings = course_settings(config)};
  const auto add = [&](std::string option, std::string value) {
    job.settings.push_back({std::move(option), std::move(value)});
  };
  add("--lr times --lr-scaling", fmt::format("{}", peak_lr(config, runtime.world_size())));
  add("--batch times --accumulate times ranks",
      fmt::format("{}", config.batch * config.accumulation *
                            static_cast<std::size_t>(runtime.world_size())));
  if (config.lr_schedule != "constant") {
    add("--steps or --epochs",
        fmt::format("{} steps", total_steps(config, samples, runtime.world_size())));
  }
  add("--wire", std::string(to_string(options.wire_dtype.value_or(DType::kFloat32))));
  add("--compression", options.compression);
  add("--data", fmt::format("{} training samples", samples));
  if (!task.data.text_files.empty()) {
    add("vocabulary", fmt::format("{:016x}", task.data.text_files.hash()));
  }
  return job;
}

void require_resumable(const Config& config, const Runtime& runtime, Learner& learner) {
  if (!has_checkpoints(config)) return;
  const Options& options = runtime.options();
  const char* option = config.run.empty() ? "--resume" : "--run";
  if (learner.state() == nullptr) {
    throw_config_error(fmt::format("{}: checkpoints need --device cpu, and this job has {}", option,
                                   options.device));
  }
  if (leave_method_open(options.compression)) {
    throw_config_error(
        fmt::format("{}: --compression {} decides by measured times, so a job that is resumed "
                    "might take another way; name the method instead, which the line "
                    "'compression:' reports",
                    option, options.compression));
  }
}

}  // namespace kolo::trainer
