#include <gmock/gmock.h>

#include <atomic>
#include <stdexcept>

#include "comm/kernels/reference_kernels.h"
#include "tests/support/runtime_job.h"

// Tests whole runtimes, one per thread, whose reductions use several threads. The result must not
// depend on their number. Buckets are large enough to be divided.

namespace kolo {
namespace {

using testing::Each;
using testing::HasSubstr;

/// Returns any number of float16 that is small enough for finite sums.
double contribution(int rank, int iteration, std::size_t index) {
  const std::uint64_t place = (static_cast<std::uint64_t>(rank) * 1'000'003 + index) * 8 +
                              static_cast<std::uint64_t>(iteration);
  return static_cast<double>(place * 0x9e3779b97f4a7c15u >> 53) / 512 - 2;
}

void fill(const BufferView& to, int rank, int iteration) {
  std::vector<double> values(to.count);
  for (std::size_t i = 0; i < to.count; ++i) values[i] = contribution(rank, iteration, i);
  reference::convert(to.dtype, to.data, DType::kFloat64, values.data(), to.count, 1.0);
}

std::string hash(const BufferView& of) {
  const std::string_view bytes(static_cast<const char*>(of.data), of.bytes());
  return std::to_string(std::hash<std::string_view>()(bytes));
}

/// Sums tensors of odd lengths, in the arena and in the caller's memory, some alone and out of
/// place, twice. Returns the results as text.
std::string sum_tensors(Runtime& runtime) {
  const std::vector<std::size_t> counts = {150'001, 33, 70'003, 1, 40'000};
  const std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat32, DType::kFloat64,
                                     DType::kFloat32, DType::kBFloat16};
  std::vector<std::vector<double>> memory;  // aligned for all dtypes
  std::vector<GradientSpec> specs;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (const bool is_ours : {true, false}) {
      specs.push_back({.name = std::to_string(i) + (is_ours ? " ours" : " arena"),
                       .shape = {counts[i]},
                       .dtype = dtypes[i]});
      if (!is_ours) continue;
      memory.emplace_back(counts[i]);
      specs.back().data = memory.back().data();
    }
  }
  GradientSet set = runtime.register_gradients("model", specs);
  std::vector<float> input(200'003), result(input.size());
  const BufferView in{input.data(), input.size(), DType::kFloat32};
  const BufferView out{result.data(), result.size(), DType::kFloat32};
  std::string text;
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (std::size_t i = 0; i < set.size(); ++i) fill(set.view(i), runtime.rank(), iteration);
    for (std::size_t i = 0; i < set.size(); ++i) set.ready(i);
    set.wait();
    for (std::size_t i = 0; i < set.size(); ++i) text += hash(set.view(i)) + " ";
    fill(in, runtime.rank(), iteration);
    runtime.all_reduce("apart", {in, out}).wait();
    text += hash(out) + " ";
    const Reduction weighted{ReduceOp::kPremulSum, {.before = 0.3 + runtime.rank()}};
    runtime.all_reduce("weighted", {in, out}, weighted).wait();
    text += hash(out) + " ";
    runtime.all_reduce("weighted in place", in, weighted).wait();
    text += hash(in) + " ";
    runtime.all_reduce("alone", in, ReduceOp::kMax).wait();
    text += hash(in) + " ";
  }
  return text;
}

struct Way {
  int ranks;
  std::string algorithm;
  std::optional<DType> wire_dtype = std::nullopt;
};

class ReduceThreads : public testing::TestWithParam<Way> {};

TEST_P(ReduceThreads, ChangeNoBit) {
  std::vector<std::string> alone;
  for (const int threads : {0, 3}) {
    const Options options{.algorithm = GetParam().algorithm,
                          .calibrate = "off",
                          .wire_dtype = GetParam().wire_dtype,
                          .arena_bytes = std::size_t{64} << 20,
                          .node_id = "a",
                          .reduce_threads = threads};
    test::Texts sums(GetParam().ranks);
    test::RuntimeJob(GetParam().ranks, options).run([&](Runtime& runtime) {
      sums.set(runtime.rank(), sum_tensors(runtime));
    });
    EXPECT_THAT(sums.all(), Each(sums.all().front())) << threads << " threads";
    if (threads == 0) alone = sums.all();
    EXPECT_EQ(sums.all(), alone) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ReduceThreads,
                         testing::Values(Way{1, "auto"}, Way{2, "auto"}, Way{5, "direct"},
                                         Way{2, "flat"}, Way{2, "direct", DType::kFloat16},
                                         Way{3, "direct", DType::kBFloat16}));

// Ranks 0 and 2 are in sums when rank 1 is lost. Their helper threads must end too.
TEST(ReduceThreadsLife, EndWithARuntimeThatFails) {
  constexpr int kThree = 3;
  const Options options{.fusion_bytes = 0,
                        .algorithm = "direct",
                        .calibrate = "off",
                        .arena_bytes = std::size_t{64} << 20,
                        .node_id = "a",
                        .reduce_threads = 2};
  test::RuntimeJob job(kThree, options);
  test::Texts errors(kThree);
  std::atomic<int> registered{0};
  test::run_ranks(kThree, [&](const test::RankRun& run) {
    const int rank = run.rank();
    std::vector<std::vector<float>> data(4, std::vector<float>(300'000, 1.0F));
    try {
      Runtime runtime = job.join(rank);
      std::vector<GradientSpec> specs;
      for (auto& each : data) {
        specs.push_back({.name = std::to_string(specs.size()), .shape = {each.size()}});
        specs.back().data = each.data();
      }
      GradientSet set = runtime.register_gradients("model", specs);
      test::meet(run, registered);
      try {
        for (std::size_t i = 0; i < (rank == 1 ? 2 : data.size()); ++i) set.ready(i);
        if (rank != 1) set.wait();
      } catch (const KoloError& e) {
        errors.set(rank, e.what());
      }
      if (rank == 1) throw std::logic_error("bug of the user");
    } catch (const std::logic_error&) {
    }
  });
  EXPECT_THAT(errors.all()[0], HasSubstr("rank 1: left the job"));
  EXPECT_THAT(errors.all()[2], HasSubstr("rank 1: left the job"));
}

TEST(ReduceThreadsLife, EndWithARuntimeThatIsClosedAtOnce) {
  const Options options{
      .calibrate = "off", .arena_bytes = std::size_t{1} << 20, .node_id = "a", .reduce_threads = 3};
  for (int i = 0; i < 5; ++i) {
    test::RuntimeJob(2, options).run([](Runtime& runtime) { runtime.close(); });
  }
}

}  // namespace
}  // namespace kolo
