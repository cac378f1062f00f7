#include "trainer/loop/learner.h"

#include <utility>

#include "trainer/errors.h"
#include "trainer/loop/compression_rules.h"

namespace kolo::trainer {

std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task,
                                      const Catalog& catalog) {
  if (runtime.options().device == "cpu") return make_cpu_learner(config, runtime, task, catalog);
  require_offered_on_gpus(config);
  require_device_compression(runtime.options());
  gradient_dtype(config, runtime.options());  // Refuses what needs the processor.
#if KOLO_CUDA_TRAINER
  return cuda::make_learner(config, runtime, task);
#else
  throw_config_error("--device " + runtime.options().device +
                     ": this build trains on cpu only; training on a GPU needs a build with CUDA "
                     "and cuDNN (-DKOLO_WITH_CUDA=ON -DKOLO_WITH_CUDNN=ON)");
#endif
}

void require_offered_on_gpus(const Config& config) {
  for (const auto& [is_set, option] : {std::pair{config.accumulation > 1, "--accumulate"},
                                       {config.label_smoothing > 0.0f, "--label-smoothing"},
                                       {config.optimizer_options.nesterov, "--nesterov"},
                                       {!config.decay_rules.empty(), "--decay-rules"},
                                       {!config.weights.empty(), "--weights"},
                                       {config.shard != "none", "--shard"},
                                       {config.uneven == "join", "--uneven join"},
                                       {config.dropout > 0.0f, "--dropout"},
                                       {config.positions != "learned", "--positions"},
                                       {!config.tied, "--tied off"},
                                       {config.weight_average > 0.0f, "--weight-average"}}) {
    if (is_set) throw_config_error(std::string(option) + ": needs --device cpu");
  }
}

std::vector<std::string> device_models() {
#if KOLO_CUDA_TRAINER
  return cuda::model_names();
#else
  return {};
#endif
}

}  // namespace kolo::trainer
