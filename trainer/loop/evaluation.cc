#include "trainer/loop/training.h"

#include <array>
#include <cstdint>
#include <optional>

#include "trainer/mesh/mesh.h"

namespace kolo::trainer {
namespace {

std::size_t loader_threads(const Config& config, const Runtime& runtime) {
  if (config.loader_threads) return *config.loader_threads;
  return spare_loader_threads(find_loader_cores(static_cast<std::size_t>(runtime.local_size()),
                                                static_cast<std::size_t>(config.threads)));
}

DataLoader make_loader(const Config& config, const Runtime& runtime, const Dataset& dataset,
                       std::size_t accumulation, std::optional<std::uint64_t> seed, Uneven uneven) {
  const MeshShape mesh = mesh_of(config.mesh, runtime);
  return DataLoader(dataset, {.ranks = mesh.data,
                              .rank = mesh.data_index(runtime.rank()),
                              .batch = config.batch,
                              .accumulation = accumulation,
                              .seed = seed,
                              .uneven = uneven,
                              .threads = loader_threads(config, runtime)});
}

}  // namespace

DataLoader make_training_loader(const Config& config, const Runtime& runtime, const Task& task) {
  return make_loader(config, runtime, *task.data.train, config.accumulation, config.seed,
                     parse_uneven(config.uneven));
}

DataLoader make_held_out_loader(const Config& config, const Runtime& runtime,
                                const Dataset& held_out) {
  return make_loader(config, runtime, held_out, 1, std::nullopt, Uneven::kPad);
}

LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums) {
  std::array<double, 3> values{sums.loss, sums.score, sums.rows};
  runtime.all_reduce(name, {values.data(), values.size(), DType::kFloat64}).wait();
  return {.loss = values[0], .score = values[1], .rows = values[2]};
}

LossSums evaluate(Runtime& runtime, Learner& learner, DataLoader& loader,
                  const std::function<void(std::size_t)>& progress) {
  learner.begin_evaluation();
  for (std::size_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.load(0, step);
    if (batch.samples > 0) learner.evaluate(batch);
    progress(step + 1);
  }
  learner.end_evaluation();
  return sum_over_ranks(runtime, "evaluation", learner.take_sums());
}

}  // namespace kolo::trainer
