// Tests gradients of a flat buffer, iterations that a rank gives up, and comparisons of weights.

#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(FlatGradients, LieOneAfterAnother) {
  std::vector<double> flat(10);
  const std::vector<std::size_t> sizes = {3, 0, 7};
  const std::vector<GradientSpec> gradients = flat_gradients(flat, sizes);
  ASSERT_EQ(gradients.size(), 3U);
  EXPECT_EQ(gradients[2].name, "2");
  EXPECT_EQ(gradients[2].data, &flat[3]);
  EXPECT_EQ(gradients[2].count(), 7U);
  EXPECT_EQ(gradients[2].element_type(), DType::kFloat64);
  const std::vector<std::string> names = {"weight", "nothing", "bias"};
  EXPECT_EQ(flat_gradients(flat, sizes, names)[2].name, "bias");
}

TEST(FlatGradients, FillTheirBuffer) {
  std::vector<float> flat(10);
  const auto error_of_sizes = [&](const std::vector<std::size_t>& sizes,
                                  const std::vector<std::string>& names = {}) {
    return error_of([&] { flat_gradients(flat, sizes, names); });
  };
  EXPECT_THAT(error_of_sizes({3, 6}), HasSubstr("add up to 9 elements, and their flat buffer has"));
  EXPECT_THAT(error_of_sizes({3, 8, 1}),
              HasSubstr("the first 2 sizes of gradients add up to more"));
  EXPECT_THAT(error_of_sizes({3, static_cast<std::size_t>(-1)}), HasSubstr("the first 2 sizes"));
  EXPECT_THAT(error_of_sizes({3, 7}, {"weight"}), HasSubstr("1 names for 2 gradients"));
}

TEST(FlatGradients, HaveABuffer) {
  float* const nowhere = nullptr;
  const std::vector<std::size_t> sizes = {3, 7}, nothing = {0};
  EXPECT_THAT(error_of([&] {
                flat_gradients({nowhere, 10}, sizes);
              }),
              HasSubstr("the flat buffer of gradients is null"));
  EXPECT_EQ(flat_gradients({nowhere, 0}, nothing).size(), 1U);
}

TEST(RuntimeGradients, OfAFlatBufferAreAveraged) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    std::vector<float> flat(52 * 3, static_cast<float>(runtime.rank()));
    const std::vector<std::size_t> sizes(52, 3);
    GradientSet set = runtime.register_gradients("model", flat_gradients(flat, sizes));
    for (std::size_t i = 0; i < set.size(); ++i) set.ready(i);
    set.wait();
    require(flat == std::vector<float>(52 * 3, 0.5F), "the average");
  });
}

// A rank's batch throws after some gradients. All ranks get the same values, and the job continues.
TEST(RuntimeGradients, ThatARankGivesUpCountAsZeros) {
  Options options = test_options();
  options.fusion_bytes = 0;  // one bucket per gradient: some are sent before the exception
  RuntimeJob(2, options).run([](Runtime& runtime) {
    std::vector<float> flat(4 * 100);
    const std::vector<std::size_t> sizes(4, 100);
    GradientSet set = runtime.register_gradients("model", flat_gradients(flat, sizes));
    const auto iterate = [&](std::size_t marked, float first, float rest) {
      flat.assign(flat.size(), static_cast<float>(2 * runtime.rank() + 2));
      try {
        for (std::size_t i = 0; i < set.size(); ++i) {
          if (runtime.rank() == 1 && i == marked) throw std::runtime_error("a bad batch");
          set.ready(i);
        }
      } catch (const std::runtime_error&) {
        set.give_up();
      }
      set.wait();
      require(flat[99] == first, "the first average is " + std::to_string(flat[99]));
      require(flat[399] == rest, "the last average is " + std::to_string(flat[399]));
    };
    iterate(2, 3, 1);
    iterate(0, 1, 1);
    iterate(4, 3, 3);
    set.give_up();  // all ranks skip an iteration
    set.give_up();
    set.wait();
    require(flat[399] == 0, "nothing");
    iterate(1, 3, 1);
  });
}

TEST(RuntimeGradients, ThatARankGivesUpDoNotCountAmongContributions) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    std::vector<float> flat(2, static_cast<float>(runtime.rank() + 1));
    const std::vector<std::size_t> sizes = {1, 1};
    GradientSet set = runtime.register_gradients("model", flat_gradients(flat, sizes),
                                                 {.divisor = Divisor::kContributingRanks});
    set.ready(0);
    if (runtime.rank() == 0) set.ready(1);
    set.give_up();
    set.wait();
    require(flat == std::vector<float>({1.5F, 1}), "the averages");
  });
}

TEST(CheckEqual, NamesTensorsAndRanksThatDiffer) {
  constexpr int kRanks = 4;
  Texts errors(kRanks);
  RuntimeJob(kRanks, test_options()).run([&](Runtime& runtime) {
    std::vector<float> weight(1000, 0.5F);
    std::vector<double> bias(3, -1);
    const std::vector<NamedTensor> tensors = {{"weight", weight}, {"bias", bias}, {"none", {}}};
    check_equal(runtime, "weights", tensors);
    if (runtime.rank() == 1 || runtime.rank() == 3) bias[2] = runtime.rank();
    errors.set(runtime.rank(), error_of([&] { check_equal(runtime, "weights", tensors); }));
    bias[2] = -1;
    check_equal(runtime, "weights", tensors);
    check_equal(runtime, "nothing", {});
  });
  EXPECT_THAT(errors.all(), Each(errors.all()[0]));
  EXPECT_THAT(errors.all()[0], AllOf(HasSubstr("mismatch: 'weights': 'bias' is not equal"),
                                     HasSubstr("'bias' of ranks 1, 3 differs from that of rank 0"),
                                     Not(HasSubstr("weight'"))));
}

TEST(CheckEqual, ComparesNamesAndTypesToo) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    const bool first = runtime.rank() == 0;
    const std::int64_t zeros[2] = {};
    const NamedTensor tensors[] = {
        {first ? "a" : "b", ConstBuffer(zeros, 1)},
        {"type", ConstBuffer(zeros, 1, first ? DType::kInt64 : DType::kFloat64)},
        {"count", ConstBuffer(zeros, first ? 1 : 2)}};
    errors.set(runtime.rank(), error_of([&] { check_equal(runtime, "all", tensors); }));
  });
  EXPECT_THAT(errors.all()[1], HasSubstr("'b', 'type', 'count' are not equal on all ranks: 'b' of "
                                         "rank 1 differs"));
}

TEST(CheckEqual, RefusesDeviceMemory) {
  RuntimeJob(1, test_options()).run([&](Runtime& runtime) {
    float value = 0;
    const NamedTensor tensors[] = {{"weight", ConstBuffer(&value, 1, MemoryKind::kDevice)}};
    const std::string error = error_of([&] { check_equal(runtime, "weights", tensors); });
    require(error.find("'weight': it is in device memory; copy it") != std::string::npos, error);
  });
}

}  // namespace
}  // namespace kolo::test
