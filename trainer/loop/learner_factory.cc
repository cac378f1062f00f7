#include "trainer/loop/learner.h"

#include <utility>

#include "trainer/errors.h"
#include "trainer/loop/compression_rules.h"

namespace kolo::trainer {

std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task,
                                      const Catalog& catalog) {
  if (runtime.options().device == "cpu") return make_cpu_learner(config, runtime, task, catalog);
  require_offered_on_gpus(config);
  require_device_compression(config, runtime.options());
  gradient_dtype(config, runtime.options());  // throws for options that exclude each other
  if (runtime.rank() == 0 && config.optimizer == "adamw") {
    advise_adaptive(config, runtime.options().compression);
  }
#if KOLO_CUDA_TRAINER
  return cuda::make_learner(config, runtime, task);
#else
  throw_config_error("--device " + runtime.options().device +
                     ": this build trains on cpu only; training on a GPU needs a build with CUDA "
                     "and cuDNN (-DKOLO_WITH_CUDA=ON -DKOLO_WITH_CUDNN=ON)");
#endif
}

void require_offered_on_gpus(const Config& config) {
  Config copy = config, unchanged;
  const std::vector<ConfigOption> options = options_of(copy), defaults = options_of(unchanged);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const std::string value = options[i].text();
    const bool is_set = (options[i].traits & kNotOnGpus) != 0 && value != defaults[i].text();
    if (is_set || (options[i].name == "--uneven" && value == "join") ||
        (options[i].name == "--shard" && value == "gradients")) {
      throw_config_error(options[i].name + " " + value + ": needs --device cpu");
    }
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
