#include "trainer/data/data_loader.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

// One batch in use, one that each thread prepares, and one that waits.
std::size_t memory_count(std::size_t threads) { return threads == 0 ? 1 : threads + 2; }

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, const Options& options)
    : dataset_(dataset),
      options_(options),
      sharding_(dataset.size(), options.ranks, options.batch * options.accumulation,
                options.uneven),
      order_(dataset.size(), options.seed),
      memories_(memory_count(options.threads), BatchMemory(dataset.format(), options.batch)) {
  if (options.threads == 0 || steps_per_epoch() == 0) return;
  const std::uint64_t epoch = steps_per_epoch() * options.accumulation;
  // Without a seed all epochs are alike: one pass over the data, as evaluation makes it.
  prefetcher_.emplace(
      Prefetcher::Options{.threads = options.threads,
                          .slots = memories_.size(),
                          .round = options.seed ? UINT64_MAX : epoch},
      [this](std::uint64_t number, std::size_t slot) { return prepare(number, slot); });
}

Batch DataLoader::load(std::uint64_t epoch, std::size_t step, std::size_t pass) {
  check(step < steps_per_epoch() && pass < options_.accumulation,
        "a step lies within its epoch, a pass within its step");
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t number = (epoch * steps_per_epoch() + step) * options_.accumulation + pass;
  Batch batch = prefetcher_ ? prefetcher_->take(number) : prepare(number, 0);
  waited_ += std::chrono::steady_clock::now() - begin;
  return batch;
}

Batch DataLoader::prepare(std::uint64_t number, std::size_t slot) {
  const std::size_t pass = number % options_.accumulation;
  const std::uint64_t step = number / options_.accumulation;
  const std::uint64_t epoch = step / steps_per_epoch();
  const ShardPart part = sharding_.part(step % steps_per_epoch(), options_.rank);
  const std::size_t skipped = std::min(part.count, pass * options_.batch);
  const std::size_t first = part.begin + skipped;
  const std::size_t samples = std::min(options_.batch, part.count - skipped);
  const SampleOrder::Indices indices = order_.of(epoch);
  Batch batch = memories_[slot].fill(dataset_, epoch, samples, [&](std::size_t i) {
    return indices ? (*indices)[first + i] : first + i;
  });
  batch.rank_samples = part.count;
  batch.global_samples = part.global_count;
  batch.leaves_out_ranks = part.leaves_out_ranks;
  batch.first_position = first;
  return batch;
}

}  // namespace kolo::trainer
