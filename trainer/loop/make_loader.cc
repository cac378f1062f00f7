#include "trainer/loop/make_loader.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trainer/data/loader_threads.h"

namespace kolo::trainer {
namespace {

std::size_t loader_threads(const Config& config, const Runtime& runtime) {
  if (config.loader_threads) return *config.loader_threads;
  return spare_loader_threads(find_loader_cores(static_cast<std::size_t>(runtime.local_size()),
                                                static_cast<std::size_t>(config.threads)));
}

DataLoader make_loader(const Config& config, const Runtime& runtime, const Dataset& dataset,
                       std::size_t accumulation, std::optional<std::uint64_t> seed, Uneven uneven) {
  return DataLoader(dataset, {.ranks = static_cast<std::size_t>(runtime.world_size()),
                              .rank = static_cast<std::size_t>(runtime.rank()),
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

}  // namespace kolo::trainer
