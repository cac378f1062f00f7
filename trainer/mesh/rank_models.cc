#include "trainer/mesh/rank_models.h"

#include <optional>

#include "trainer/compute/device.h"
#include "trainer/mesh/pipeline.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {

RankModels make_rank_models(const ModelEntry& entry, const ModelSetting& setting, const Task& task,
                            Device& device) {
  const std::size_t before = Tensor::bytes_of_thread();
  RankModels made;
  made.models.push_back(entry.make(setting, device));
  ParameterSet& parameters = made.models[0]->parameters();
  ModelSetting sharing = setting;
  sharing.parameters = &parameters;
  while (made.models.size() < open_passes(setting.stage, setting.config.accumulation)) {
    made.models.push_back(entry.make(sharing, device));
  }
  made.loss = task.make_loss(setting.batch,
                             made.models[0]->deals_out_outputs() ? setting.tensor : TensorRanks());
  made.activation_bytes =
      Tensor::bytes_of_thread() - before - parameters.element_count() * sizeof(float);
  return made;
}

RankLoad load_of_rank(const Config& config, const Task& task, const Catalog& catalog,
                      const MeshShape& shape, int rank) {
  Device device(parse_precision(config.precision));
  ParameterSet parameters(std::nullopt);
  ModelSetting setting = model_setting(config, task);
  setting.tensor = {.index = shape.tensor_index(rank), .ways = shape.tensor};
  setting.stage = shape.stage(rank);
  setting.parameters = &parameters;
  const ModelEntry& entry = catalog.models.at(config.model);
  const RankModels made = make_rank_models(entry, setting, task, device);
  const auto optimizer =
      catalog.optimizers.at(config.optimizer).make(parameters, config.optimizer_options);
  RankLoad load{.parameters = parameters.element_count(),
                .optimizer_bytes = bytes_of(*optimizer),
                .activation_bytes = made.activation_bytes,
                .inputs = made.models[0]->stage_inputs()};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (!parameter.name().ends_with(".weight") && !parameter.is_shared()) continue;
    load.products += static_cast<double>(parameter.size());
    if (parameter.part().is_whole() || parameter.part().axis == 0) continue;
    ++load.sums;
    load.width = parameter.shape()[0];
  }
  if (!setting.stage.is_first() && made.models[0]->shared_table() != nullptr) {
    load.products += static_cast<double>(made.models[0]->shared_table()->size());
  }
  return load;
}

}  // namespace kolo::trainer
