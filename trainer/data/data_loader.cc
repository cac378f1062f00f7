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

// Streams of the seed below this one initialise parameters.
constexpr std::uint64_t kEpochStreams = std::uint64_t{1} << 32;

// One batch in use, one that each thread prepares, and one that waits.
std::size_t memory_count(std::size_t threads) { return threads == 0 ? 1 : threads + 2; }

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

Prefetcher::Prefetcher(const Options& options, Prepare prepare)
    : options_(options), prepare_(std::move(prepare)), slots_(options.slots) {
  check(options.threads > 0 && options.slots > 1 && options.round > 0,
        "preparing batches ahead takes a thread and two memories");
  for (std::size_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

Prefetcher::~Prefetcher() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  work_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Batch Prefetcher::take(std::uint64_t number) {
  MutexLock lock(mutex_);
  if (!in_use_ || number != *in_use_ + 1) {
    in_use_.reset();
    slot_changed_.wait(lock, [&]() KOLO_REQUIRES(mutex_) { return working_ == 0; });
    slots_.assign(options_.slots, {});
    next_ = number;
  }
  in_use_ = number;
  work_changed_.notify_all();
  const Slot& slot = slot_of(number);
  slot_changed_.wait(
      lock, [&]() KOLO_REQUIRES(mutex_) { return slot.number == number && slot.is_ready; });
  if (slot.error) std::rethrow_exception(slot.error);
  return slot.batch;
}

void Prefetcher::work() {
  while (const std::optional<std::uint64_t> number = wait_for_work()) {
    try {
      finish(*number, prepare_(*number, *number % options_.slots), nullptr);
    } catch (...) {
      finish(*number, {}, std::current_exception());
    }
  }
}

std::optional<std::uint64_t> Prefetcher::wait_for_work() {
  MutexLock lock(mutex_);
  work_changed_.wait(lock, [&]() KOLO_REQUIRES(mutex_) { return is_stopping_ || may_start(); });
  if (is_stopping_) return std::nullopt;
  slot_of(next_) = {.number = next_};
  ++working_;
  return next_++;
}

void Prefetcher::finish(std::uint64_t number, Batch batch, std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    Slot& slot = slot_of(number);
    slot.batch = std::move(batch);
    slot.error = std::move(error);
    slot.is_ready = true;
    --working_;
  }
  slot_changed_.notify_all();
}

bool Prefetcher::may_start() const {
  return in_use_ && next_ < *in_use_ + options_.slots &&
         next_ / options_.round == *in_use_ / options_.round;
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
  // A rank that is bound to cores has those; ranks that are not share the machine.
  return std::min(cores.own, cores.machine / cores.ranks) > cores.compute_threads ? 1 : 0;
}

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
