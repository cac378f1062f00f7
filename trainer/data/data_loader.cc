#include "trainer/data/data_loader.h"

#include <algorithm>

#include "comm/base/check.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

// Streams of the seed below this one initialise parameters.
constexpr std::uint64_t kEpochStreams = std::uint64_t{1} << 32;

}  // namespace

TensorSlot DataLoader::Column::slot(std::size_t sample) {
  return {dtype, std::span(bytes).subspan(sample * sample_bytes, sample_bytes)};
}

TensorView DataLoader::Column::view(std::size_t samples) const {
  return {dtype, std::span(bytes).first(samples * sample_bytes)};
}

std::vector<DataLoader::Column> DataLoader::columns(const std::vector<Field>& fields,
                                                    std::size_t batch) {
  std::vector<Column> columns;
  for (const Field& field : fields) {
    columns.push_back({.dtype = field.dtype,
                       .sample_bytes = field.bytes(),
                       .bytes = std::vector<std::byte>(batch * field.bytes())});
  }
  return columns;
}

DataLoader::DataLoader(const Dataset& dataset, const Options& options)
    : dataset_(dataset),
      options_(options),
      sharding_(dataset.size(), options.ranks, options.batch * options.accumulation),
      inputs_(columns(dataset.format().inputs, options.batch)),
      targets_(columns(dataset.format().targets, options.batch)) {}

Batch DataLoader::load(std::uint64_t epoch, std::size_t step, std::size_t pass) {
  check(step < steps_per_epoch() && pass < options_.accumulation,
        "a step lies within its epoch, a pass within its step");
  if (options_.seed && order_epoch_ != epoch) {
    order_ = permutation(dataset_.size(), *options_.seed, kEpochStreams + epoch);
    order_epoch_ = epoch;
  }
  const ShardPart part = sharding_.part(step, options_.rank);
  const std::size_t skipped = std::min(part.count, pass * options_.batch);
  const std::size_t first = part.begin + skipped;
  const std::size_t samples = std::min(options_.batch, part.count - skipped);
  std::vector<TensorSlot> inputs;
  std::vector<TensorSlot> targets;
  for (std::size_t i = 0; i < samples; ++i) {
    inputs.clear();
    targets.clear();
    for (Column& column : inputs_) inputs.push_back(column.slot(i));
    for (Column& column : targets_) targets.push_back(column.slot(i));
    dataset_.copy(options_.seed ? order_[first + i] : first + i, epoch, inputs, targets);
  }
  Batch batch{.samples = samples,
              .global_samples = part.global_count,
              .epoch = epoch,
              .first_position = first};
  for (Column& column : inputs_) {
    std::fill(column.bytes.begin() + static_cast<std::ptrdiff_t>(samples * column.sample_bytes),
              column.bytes.end(), std::byte{0});
    batch.inputs.push_back(column.view(options_.batch));
  }
  for (const Column& column : targets_) batch.targets.push_back(column.view(samples));
  return batch;
}

}  // namespace kolo::trainer
