// Tests the updaters of a device on several ranks: runtimes whose devices are in host memory, and
// emulated kernels. With --shard optimizer, ranks end with the bits of whole updates, their
// checkpoints are those of the processor, and each keeps its part of the moments.

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "tests/support/device/host_connector.h"
#include "tests/support/runtime_job.h"
#include "tests/trainer/cuda/cuda_test.h"
#include "trainer/cuda/updater.h"
#include "trainer/kernels/kernels.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/loop/gradient_exchange.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/shards/shard_plan.h"

namespace kolo {
namespace {

test::HostConnections& connections() {
  static test::HostConnections all;
  return all;
}

}  // namespace

// These take the place of the functions that open GPUs.

bool is_built_with_cuda() { return true; }
bool is_built_with_nccl() { return true; }
std::string cuda_availability() { return "emulated"; }

std::unique_ptr<Device> open_device(const std::string&, int) {
  return std::make_unique<CudaDevice>(0);
}

std::string introduce_groups(int, const Device&, const std::string&) {
  CudaDevice unused(0);
  const std::vector<std::byte> id = connections().connector(unused)->make_unique_id();
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

DeviceCommunicators connect_groups(std::span<const std::string> introductions, int rank,
                                   const ProcessGrid& grid, Device& device,
                                   std::chrono::milliseconds) {
  DeviceCommunicators result{
      .node = nullptr, .world = nullptr, .connector = connections().connector(device)};
  const auto connecting = result.connector->connect(
      std::as_bytes(std::span<const char>(introductions[0])), rank, grid.world_size());
  while (!(result.world = connecting->poll())) std::this_thread::yield();
  return result;
}

}  // namespace kolo

namespace kolo::trainer::cuda {
namespace {

using testing::HasSubstr;

thread_local int rank_of_thread = 0;

/// The state of all ranks, with whole tensors in place of shards. Threads: any.
class WholeState final : public StateVisitor {
 public:
  bool restores = false;

  const std::map<std::string, std::vector<std::byte>, std::less<>>& pieces() const {
    return pieces_;
  }

  bool is_restoring() const override { return restores; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view, std::vector<double>&) override { FAIL(); }
  void part_of_sum(std::string_view, double&) override { FAIL(); }
  void bytes_of_ranks(std::string_view, std::vector<std::vector<std::byte>>& bytes) override {
    const MutexLock lock(mutex_);
    std::vector<std::byte>& kept = compression_[rank_of_thread];
    restores ? bytes.front() = kept : kept = bytes.front();
  }

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override {
    const bool is_own = reach == Reach::kOwn;
    copy(is_own ? fmt::format("{} of rank {}", name, rank_of_thread) : std::string(name), piece, 0,
         piece.bytes.size());
  }
  void visit_shard(std::string_view name, const Piece& piece, std::size_t begin) override {
    std::size_t bytes = sizeof(float);
    for (const std::size_t side : piece.shape) bytes *= side;
    copy(name, piece, begin, bytes);
  }

 private:
  void copy(std::string_view name, const Piece& piece, std::size_t begin, std::size_t bytes) {
    const MutexLock lock(mutex_);
    std::vector<std::byte>& whole = pieces_[std::string(name)];
    if (!restores) whole.resize(bytes);
    ASSERT_EQ(whole.size(), bytes) << name;
    const std::span<std::byte> part = std::span(whole).subspan(begin, piece.bytes.size());
    if (restores) {
      std::ranges::copy(part, piece.bytes.begin());
    } else {
      std::ranges::copy(piece.bytes, part.begin());
    }
  }

  Mutex mutex_;
  std::map<std::string, std::vector<std::byte>, std::less<>> pieces_;
  std::map<int, std::vector<std::byte>> compression_;  // by rank
};

/// The state with which a job begins, or ends.
struct Saved {
  std::vector<std::vector<float>> values;
  WholeState state;
  std::vector<StepReport> reports;
  std::vector<UpdateMemory> memory;  ///< By rank.
};

using Shapes = std::vector<Shape>;
// Parts of ranks begin within tensors, chunks within parts, and buckets hold one tensor or several.
const Shapes kShapes = {{1}, {40, 50}, {3, kUpdateChunk}, {7}};
constexpr std::size_t kBucketBytes = 20'000;

struct Job {
  int ranks;
  Shapes shapes = kShapes;
  std::optional<int> overflow_at = {};  ///< The step in which a gradient of rank 0 is infinite.
  bool is_distinct = false;             ///< Whether all elements of a gradient differ.
};

/// A contribution whose sums are exact in bfloat16. It tells rank, tensor, element and step.
float contribution(int rank, std::size_t parameter, std::size_t i, int step) {
  const auto pattern =
      static_cast<int>((7 * i + 3 * parameter + static_cast<std::size_t>(step)) % 13);
  return static_cast<float>((pattern - 6) * (rank + 1));
}

std::unique_ptr<ParameterSet> make_parameters(const Job& job, int rank, const Saved* start) {
  auto parameters = std::make_unique<ParameterSet>(rank);  // rank 0's values are broadcast
  for (std::size_t i = 0; i < job.shapes.size(); ++i) {
    Parameter& made =
        parameters->add("tensor" + std::to_string(i), job.shapes[i], {.deviation = 1.0f});
    if (start != nullptr) std::ranges::copy(start->values[i], made.value().begin());
  }
  return parameters;
}

void fill(std::span<float> gradient, const Job& job, int rank, std::size_t parameter, int step,
          float scale) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = scale * contribution(rank, parameter, i, step);
    if (job.is_distinct) gradient[i] += 0x1p-15f * static_cast<float>(i);
  }
  // Another rank owns the last element of the first bucket.
  const bool overflows = rank == 0 && job.overflow_at == step && parameter + 1 == job.shapes.size();
  if (overflows) gradient.back() = std::numeric_limits<float>::infinity();
}

Config config_of(const std::string& optimizer, const std::string& shard,
                 const std::string& gradients = "float32") {
  Config config;
  config.optimizer = optimizer;
  config.shard = shard;
  config.gradients = gradients;
  config.loss_scale = "dynamic";
  config.optimizer_options.weight_decay = 0.1f;
  return config;
}

/// Runs steps [from, to) of `job`, whose ranks call `train` with their updater's hooks.
template <typename Train>
void run(const Job& job, Options options, const Train& train) {
  options.calibrate = "off";
  options.fusion_bytes = kBucketBytes;
  test::RuntimeJob runtimes(job.ranks, options);
  test::run_ranks(job.ranks, [&](const test::RankRun& rank) {
    Runtime runtime = runtimes.join(rank.rank());
    rank_of_thread = rank.rank();
    train(runtime);
    runtime.close();
  });
}

/// Takes steps [from, to) on devices.
void train_on_devices(const Job& job, const Config& config, int from, int to, Saved* start,
                      Saved& end, Options options = {}) {
  options.device = "cuda";
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(job.ranks));
  end.memory.resize(hashes.size());
  if (start != nullptr) start->state.restores = true;
  run(job, options, [&](Runtime& runtime) {
    const int rank = runtime.rank();
    const auto host = make_parameters(job, rank, start);
    broadcast_values(runtime, *host);
    const auto stream = runtime.device()->make_stream();
    DeviceParameters parameters(*host, *runtime.device(), *stream, DType::kBFloat16,
                                parameter_plan(config, runtime)(*host));
    parameters.upload();
    const auto updater = make_updater(config, runtime, parameters);
    parameters.on_ready([&](std::size_t index) { updater->ready(index); });
    if (start != nullptr) updater->visit_state(start->state);
    for (int step = from; step < to; ++step) {
      parameters.begin({});
      for (std::size_t i = parameters.size(); i-- > 0;) {
        fill({parameters[i].gradient, parameters[i].size}, job, rank, i, step,
             updater->loss_scale());
        parameters.ready(parameters[i]);
      }
      updater->await_averages();
      const StepReport report = updater->update(0.1f, updater->clip());
      updater->await_values();
      if (rank == 0) end.reports.push_back(report);
    }
    parameters.download();
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < host->size(); ++i) {
      const std::span<const float> value = std::as_const(*host)[i].value();
      values.emplace_back(value.begin(), value.end());
      std::vector<BFloat16> copy(value.size());
      round_to_bfloat16(value, copy);
      EXPECT_EQ(std::memcmp(parameters[i].copy, copy.data(), 2 * copy.size()), 0) << "a stale copy";
    }
    updater->visit_state(end.state);
    end.memory[static_cast<std::size_t>(rank)] = updater->memory();
    if (rank == 0) end.values = values;
    hashes[static_cast<std::size_t>(rank)] = host->hash();
  });
  EXPECT_THAT(hashes, testing::Each(hashes[0])) << "the weights of ranks differ";
}

/// Takes steps [from, to) on processors.
void train_on_processors(const Job& job, const Config& config, int from, int to, Saved* start,
                         Saved& end, const Options& options = {}) {
  if (start != nullptr) start->state.restores = true;
  run(job, options, [&](Runtime& runtime) {
    const auto parameters = make_parameters(job, runtime.rank(), start);
    const SteadyClock clock;
    const auto make = [&](ParameterSet& of) {
      const OptimizerEntry entry = config.optimizer == "sgd" ? sgd_entry() : adamw_entry();
      return entry.make(of, config.optimizer_options);
    };
    std::unique_ptr<ParameterUpdater> updater;
    if (config.shard == "none") {
      updater = std::make_unique<GradientExchange>(
          runtime, *parameters, make(*parameters),
          GradientExchange::Options{.gate = update_options(config),
                                    .compression = options.compression,
                                    .gradient_dtype = gradient_dtype(config, runtime.options())},
          clock);
    } else {
      updater = make_sharded_optimizer(runtime, *parameters, make, {.gate = update_options(config)},
                                       clock);
    }
    if (start != nullptr) updater->visit_state(start->state);
    for (int step = from; step < to; ++step) {
      for (std::size_t i = parameters->size(); i-- > 0;) {
        fill((*parameters)[i].gradient(), job, runtime.rank(), i, step, updater->loss_scale());
        (*parameters)[i].contributed();
      }
      const StepReport report = updater->step(0.1f);
      if (runtime.rank() == 0) end.reports.push_back(report);
    }
    if (runtime.rank() == 0) {
      for (std::size_t i = 0; i < parameters->size(); ++i) {
        const std::span<const float> value = std::as_const(*parameters)[i].value();
        end.values.emplace_back(value.begin(), value.end());
      }
    }
    updater->visit_state(end.state);
  });
}

void expect_follows(const Saved& actual, const Saved& expected) {
  ASSERT_EQ(actual.values.size(), expected.values.size());
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    expect_close(actual.values[i], expected.values[i], 0x1p-18f, "tensor" + std::to_string(i));
  }
  for (std::size_t step = 0; step < expected.reports.size(); ++step) {
    EXPECT_EQ(actual.reports[step].is_skipped, expected.reports[step].is_skipped);
    if (expected.reports[step].is_skipped) continue;
    const double norm = expected.reports[step].gradient_norm;
    EXPECT_NEAR(actual.reports[step].gradient_norm, norm, 1e-6 * norm);
  }
}

void expect_equal(const Saved& actual, const Saved& expected) {
  EXPECT_EQ(actual.values, expected.values);
  EXPECT_EQ(actual.state.pieces(), expected.state.pieces());
  expect_follows(actual, expected);
}

TEST(DeviceUpdaters, ShardsEndWithTheBitsOfWholeUpdatesAndFollowTheProcessor) {
  for (const int ranks : {1, 2, 3}) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const char* gradients : {"float32", "bfloat16"}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + optimizer + ", " + gradients);
        const Job job{.ranks = ranks};
        Saved whole, shards, processors;
        train_on_devices(job, config_of(optimizer, "none", gradients), 0, 3, nullptr, whole);
        train_on_devices(job, config_of(optimizer, "optimizer", gradients), 0, 3, nullptr, shards);
        expect_equal(shards, whole);
        train_on_processors(job, config_of(optimizer, "none", gradients), 0, 3, nullptr,
                            processors);
        expect_follows(whole, processors);
      }
    }
  }
}

TEST(DeviceUpdaters, ARankKeepsItsPartOfTheMoments) {
  Saved whole, shards;
  train_on_devices({.ranks = 3}, config_of("adamw", "none"), 0, 1, nullptr, whole);
  train_on_devices({.ranks = 3}, config_of("adamw", "optimizer"), 0, 1, nullptr, shards);
  std::size_t sum = 0;
  for (const UpdateMemory& memory : shards.memory) {
    EXPECT_EQ(memory.optimizer_bytes, shards.memory[0].optimizer_bytes);
    sum += memory.optimizer_bytes;
  }
  // A part of each of three buckets has at most one line of 64 bytes more than a third, twice.
  EXPECT_LE(sum, whole.memory[0].optimizer_bytes + 2 * 3 * 3 * 64);
}

TEST(DeviceUpdaters, AllRanksSkipAStepThatOverflowsInTheShardOfOne) {
  const Job job{.ranks = 3, .overflow_at = 1};
  Saved whole, shards;
  train_on_devices(job, config_of("adamw", "none"), 0, 3, nullptr, whole);
  train_on_devices(job, config_of("adamw", "optimizer"), 0, 3, nullptr, shards);
  expect_equal(shards, whole);
  EXPECT_TRUE(shards.reports[1].is_skipped);
}

TEST(DeviceUpdaters, ClippingFollowsWholeUpdates) {
  Config config = config_of("sgd", "none");
  config.clip_norm = 1.0;
  Saved whole, shards;
  train_on_devices({.ranks = 2}, config, 0, 3, nullptr, whole);
  config.shard = "optimizer";
  train_on_devices({.ranks = 2}, config, 0, 3, nullptr, shards);
  expect_follows(shards, whole);
}

TEST(DeviceUpdaters, RanksMayOwnNothing) {
  const Job job{.ranks = 3, .shapes = {{7}}};
  Saved whole, shards;
  train_on_devices(job, config_of("adamw", "none"), 0, 2, nullptr, whole);
  train_on_devices(job, config_of("adamw", "optimizer"), 0, 2, nullptr, shards);
  expect_equal(shards, whole);
}

// A job begins on processors or devices, with shards or without, and goes on with shards there.
TEST(DeviceUpdaters, CheckpointsGoFromEachToEach) {
  const Job job{.ranks = 2};
  Saved uninterrupted;
  train_on_devices(job, config_of("adamw", "none"), 0, 4, nullptr, uninterrupted);
  uninterrupted.reports.erase(uninterrupted.reports.begin(), uninterrupted.reports.begin() + 2);
  for (const char* shard : {"none", "optimizer"}) {
    SCOPED_TRACE(shard);
    Saved on_device, on_processor, resumed, resumed_from_processor, back;
    train_on_devices(job, config_of("adamw", shard), 0, 2, nullptr, on_device);
    train_on_devices(job, config_of("adamw", "optimizer"), 2, 4, &on_device, resumed);
    expect_equal(resumed, uninterrupted);
    train_on_processors(job, config_of("adamw", shard), 0, 2, nullptr, on_processor);
    train_on_devices(job, config_of("adamw", "optimizer"), 2, 4, &on_processor,
                     resumed_from_processor);
    expect_follows(resumed_from_processor, uninterrupted);
    train_on_processors(job, config_of("adamw", "optimizer"), 2, 4, &on_device, back);
    expect_follows(back, uninterrupted);
  }
}

// The largest tensor is sent sparsely, with momentum correction, from the second step on.
TEST(DeviceUpdaters, MomentumIsCorrectedAsOnTheProcessor) {
  const Job job{.ranks = 2, .is_distinct = true};
  Config config = config_of("sgd", "none");
  config.loss_scale = "off";
  config.optimizer_options.momentum = 0.75f;
  const Options options{.compression = "topk(0.05,fp32,dgc=0.75,warmup=1,scope=flat)"};
  Saved devices, processors;
  train_on_devices(job, config, 0, 4, nullptr, devices, options);
  train_on_processors(job, config, 0, 4, nullptr, processors, options);
  expect_follows(devices, processors);
}

// From the third step on, the largest tensor is sent sparsely, as directions.
const Options kDirections{.compression = "topk(0.05,fp32,warmup=2,scope=flat)"};
const Job kSendsDirections{.ranks = 2, .is_distinct = true};
Config directions_config() {
  Config config = config_of("adamw", "none");
  config.loss_scale = "off";
  config.clip_norm = 1.0;
  return config;
}

TEST(DeviceUpdaters, DirectionsAreSentAsOnTheProcessor) {
  const Config config = directions_config();
  Saved devices, processors, dense;
  train_on_devices(kSendsDirections, config, 0, 5, nullptr, devices, kDirections);
  train_on_processors(kSendsDirections, config, 0, 5, nullptr, processors, kDirections);
  expect_follows(devices, processors);
  EXPECT_TRUE(devices.state.pieces().contains("own_directions.moment/tensor2 of rank 1"));
  train_on_devices(kSendsDirections, config, 0, 5, nullptr, dense);
  EXPECT_NE(devices.values, dense.values);
}

// The job is saved when it has measured one of two dense steps.
TEST(DeviceUpdaters, DirectionsGoFromEachToEach) {
  const Config config = directions_config();
  Saved whole, on_device, on_processor, to_device, to_processor;
  train_on_devices(kSendsDirections, config, 0, 4, nullptr, whole, kDirections);
  whole.reports.erase(whole.reports.begin());
  train_on_devices(kSendsDirections, config, 0, 1, nullptr, on_device, kDirections);
  train_on_processors(kSendsDirections, config, 0, 1, nullptr, on_processor, kDirections);
  train_on_devices(kSendsDirections, config, 1, 4, &on_processor, to_device, kDirections);
  expect_follows(to_device, whole);
  train_on_processors(kSendsDirections, config, 1, 4, &on_device, to_processor, kDirections);
  expect_follows(to_processor, whole);
}

TEST(DeviceUpdaters, OptionsThatExcludeShardsAreNamed) {
  const auto refusal = [](const Options& options) -> std::string {
    Saved end;
    try {
      train_on_devices({.ranks = 2}, config_of("sgd", "optimizer"), 0, 1, nullptr, end, options);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refusal({.wire_dtype = DType::kBFloat16}),
              HasSubstr("--shard with --wire bfloat16: on a GPU"));
  EXPECT_THAT(refusal({.compression = "topk(0.01)"}),
              HasSubstr("--shard with --compression topk(0.01)"));
}

}  // namespace
}  // namespace kolo::trainer::cuda
