#include "trainer/data/data_loader.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "comm/base/check.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

// Number of the first random stream of permutations; lower streams initialise parameters.
constexpr std::uint64_t kEpochStreams = std::uint64_t{1} << 32;

}  // namespace

TensorSlot BatchMemory::Column::slot(std::size_t sample) {
  return {dtype, std::span(bytes).subspan(sample * sample_bytes, sample_bytes)};
}

TensorView BatchMemory::Column::view(std::size_t samples) const {
  return {dtype, std::span(bytes).first(samples * sample_bytes)};
}

std::vector<BatchMemory::Column> BatchMemory::columns(const std::vector<Field>& fields,
                                                      std::size_t batch) {
  std::vector<Column> columns;
  for (const Field& field : fields) {
    columns.push_back({.dtype = field.dtype,
                       .sample_bytes = field.bytes(),
                       .bytes = std::vector<std::byte>(batch * field.bytes())});
  }
  return columns;
}

BatchMemory::BatchMemory(const SampleFormat& format, std::size_t batch)
    : batch_(batch),
      inputs_(columns(format.inputs, batch)),
      targets_(columns(format.targets, batch)) {}

Batch BatchMemory::fill(const Dataset& dataset, std::uint64_t epoch, std::size_t samples,
                        const std::function<std::size_t(std::size_t i)>& index_of) {
  std::vector<TensorSlot> inputs;
  std::vector<TensorSlot> targets;
  for (std::size_t i = 0; i < samples; ++i) {
    inputs.clear();
    targets.clear();
    for (Column& column : inputs_) inputs.push_back(column.slot(i));
    for (Column& column : targets_) targets.push_back(column.slot(i));
    dataset.copy(index_of(i), epoch, inputs, targets);
  }
  Batch batch{.samples = samples, .epoch = epoch};
  for (Column& column : inputs_) {
    std::fill(column.bytes.begin() + static_cast<std::ptrdiff_t>(samples * column.sample_bytes),
              column.bytes.end(), std::byte{0});
    batch.inputs.push_back(column.view(batch_));
  }
  for (const Column& column : targets_) batch.targets.push_back(column.view(samples));
  return batch;
}

SampleOrder::Indices SampleOrder::of(std::uint64_t epoch) const {
  if (!seed_) return nullptr;
  const MutexLock lock(mutex_);
  for (const Known& known : known_) {
    if (known.indices && known.epoch == epoch) return known.indices;
  }
  known_[1] = std::move(known_[0]);
  known_[0] = {.epoch = epoch,
               .indices = std::make_shared<const std::vector<std::size_t>>(
                   permutation(samples_, *seed_, kEpochStreams + epoch))};
  return known_[0].indices;
}

LoaderCores find_loader_cores(std::size_t ranks, std::size_t compute_threads) {
  const auto machine = static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_CONF), long{1}));
  cpu_set_t own;
  CPU_ZERO(&own);
  const bool is_known = ::sched_getaffinity(0, sizeof own, &own) == 0;
  return {.own = is_known ? static_cast<std::size_t>(CPU_COUNT(&own)) : machine,
          .machine = machine,
          .ranks = ranks,
          .compute_threads = compute_threads};
}

std::size_t spare_loader_threads(const LoaderCores& cores) {
  // A rank that is bound to cores uses only these; ranks that are not bound share the machine.
  return std::min(cores.own, cores.machine / cores.ranks) > cores.compute_threads ? 1 : 0;
}

DataLoader::DataLoader(const Dataset& dataset, const Options& options)
    : dataset_(dataset),
      options_(options),
      sharding_(dataset.size(), options.ranks, options.batch * options.accumulation,
                options.uneven),
      order_(dataset.size(), options.seed),
      memories_(options.threads + 1, BatchMemory(dataset.format(), options.batch)) {}

void DataLoader::take_batches(const std::vector<std::size_t>& batches) {
  check(batches.size() == options_.ranks, "every rank has a batch");
  ahead_.clear();  // waits for batches that are being prepared
  options_.batch = batches[options_.rank];
  std::vector<std::size_t> in_step = batches;
  for (std::size_t& samples : in_step) samples *= options_.accumulation;
  sharding_ = Sharding(dataset_.size(), in_step, options_.uneven);
  memories_.assign(options_.threads + 1, BatchMemory(dataset_.format(), options_.batch));
}

Batch DataLoader::load(std::uint64_t epoch, std::size_t step, std::size_t pass) {
  check(step < steps_per_epoch() && pass < options_.accumulation,
        "a step lies within its epoch, a pass within its step");
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t number = (epoch * steps_per_epoch() + step) * options_.accumulation + pass;
  Batch batch;
  if (options_.threads == 0) {
    batch = prepare(number);
  } else {
    // Without a seed, nothing is prepared after the epoch, because an evaluation reads one epoch.
    const std::uint64_t numbers = steps_per_epoch() * options_.accumulation;
    const std::uint64_t end = options_.seed ? UINT64_MAX : (number / numbers + 1) * numbers;
    if (number != next_) ahead_.clear();  // blocks until batches in preparation are complete
    next_ = number;
    prepare_ahead(end);
    std::future<Batch> first = std::move(ahead_.front());
    ahead_.pop_front();
    ++next_;
    batch = first.get();
    prepare_ahead(end);
  }
  waited_ += std::chrono::steady_clock::now() - begin;
  return batch;
}

void DataLoader::prepare_ahead(std::uint64_t end) {
  while (ahead_.size() < options_.threads && next_ + ahead_.size() < end) {
    ahead_.push_back(
        std::async(std::launch::async, &DataLoader::prepare, this, next_ + ahead_.size()));
  }
}

Batch DataLoader::prepare(std::uint64_t number) {
  const std::size_t pass = number % options_.accumulation;
  const std::uint64_t step = number / options_.accumulation;
  const std::uint64_t epoch = step / steps_per_epoch();
  const ShardPart part = sharding_.part(step % steps_per_epoch(), options_.rank);
  const std::size_t skipped = std::min(part.count, pass * options_.batch);
  const std::size_t first = part.begin + skipped;
  const std::size_t samples = std::min(options_.batch, part.count - skipped);
  const SampleOrder::Indices indices = order_.of(epoch);
  BatchMemory& memory = memories_[number % memories_.size()];
  Batch batch = memory.fill(dataset_, epoch, samples, [&](std::size_t i) {
    return indices ? (*indices)[first + i] : first + i;
  });
  batch.rank_samples = part.count;
  batch.global_samples = part.global_count;
  batch.leaves_out_ranks = part.leaves_out_ranks;
  batch.first_position = first;
  return batch;
}

}  // namespace kolo::trainer
