#include "trainer/data/data_loader.h"

#include <algorithm>

#include "comm/base/check.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

// Streams of the seed below this one initialise parameters.
constexpr std::uint64_t kEpochStreams = std::uint64_t{1} << 32;

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, const Options& options)
    : dataset_(dataset),
      options_(options),
      sharding_(dataset.size(), options.ranks, options.batch),
      inputs_(options.batch * dataset.input_bytes()),
      targets_(options.batch * dataset.target_bytes()) {}

Batch DataLoader::load(std::size_t epoch, std::size_t step) {
  check(step < steps_per_epoch(), "a step lies within its epoch");
  if (options_.seed && order_epoch_ != epoch) {
    order_ = permutation(dataset_.size(), *options_.seed, kEpochStreams + epoch);
    order_epoch_ = epoch;
  }
  const ShardPart part = sharding_.part(step, options_.rank);
  const std::size_t input_bytes = dataset_.input_bytes();
  const std::size_t target_bytes = dataset_.target_bytes();
  for (std::size_t i = 0; i < part.count; ++i) {
    const std::size_t position = part.begin + i;
    dataset_.copy(options_.seed ? order_[position] : position,
                  std::span(inputs_).subspan(i * input_bytes, input_bytes),
                  std::span(targets_).subspan(i * target_bytes, target_bytes));
  }
  std::fill(inputs_.begin() + static_cast<std::ptrdiff_t>(part.count * input_bytes), inputs_.end(),
            std::uint8_t{0});
  return {.inputs = inputs_,
          .targets = std::span(targets_).first(part.count * target_bytes),
          .samples = part.count,
          .global_samples = part.global_count};
}

}  // namespace kolo::trainer
