#include "trainer/loop/learner_factory.h"

#include <utility>

#include "trainer/config_error.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/loop/cpu_learner.h"
#include "trainer/loop/gradient_dtype.h"

#if KOLO_CUDA_TRAINER
#include "trainer/cuda/learner/cuda_learner.h"
#include "trainer/cuda/learner/model_table.h"
#endif

namespace kolo::trainer {
namespace {

#if KOLO_CUDA_TRAINER

std::unique_ptr<Learner> make_device_learner(const Config& config, Runtime& runtime,
                                             const Task& task) {
  return std::make_unique<cuda::CudaLearner>(config, runtime, task);
}

std::vector<std::string> built_device_models() { return cuda::model_names(); }

#else

std::vector<std::string> built_device_models() { return {}; }

std::unique_ptr<Learner> make_device_learner(const Config&, Runtime& runtime, const Task&) {
  throw_config_error("--device " + runtime.options().device +
                     ": this build trains on cpu only; training on a GPU needs a build with CUDA "
                     "and cuDNN (-DKOLO_WITH_CUDA=ON -DKOLO_WITH_CUDNN=ON)");
}

#endif

}  // namespace

std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task,
                                      const Catalog& catalog) {
  if (runtime.options().device == "cpu") {
    return std::make_unique<CpuLearner>(config, runtime, task, catalog);
  }
  require_offered_on_gpus(config);
  require_device_compression(runtime.options());
  gradient_dtype(config, runtime.options());  // Refuses what needs the processor.
  return make_device_learner(config, runtime, task);
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

std::vector<std::string> device_models() { return built_device_models(); }

}  // namespace kolo::trainer
