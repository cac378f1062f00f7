// Tests asynchronous steps with gradients that are set, on ranks whose pace is set. Ranks are
// threads.

#include "trainer/loop/async_updater.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "tests/support/rank_harness.h"
#include "tests/support/runtime_job.h"
#include "tests/support/thrown_error.h"
#include "tests/trainer/small_data.h"

namespace kolo::trainer {
namespace {

using test::require;
using testing::HasSubstr;

/// A model of three tensors, whose parts on owners begin within tensors, with its updater. All
/// weights begin as 1 on rank 0.
class Model {
 public:
  Model(Runtime& runtime, const std::string& optimizer, std::optional<std::uint64_t> staleness) {
    const float initial = runtime.rank() == 0 ? 1.0f : 7.0f;
    parameters_.add("matrix", {3, 40}, {.mean = initial});
    parameters_.add("vector", {5}, {.mean = initial});
    parameters_.add("table", {7, 9}, {.mean = initial});
    const auto make = [optimizer](ParameterSet& of) {
      return make_optimizer(optimizer, of, {.momentum = 0.0f});
    };
    updater_ = make_async_updater(runtime, parameters_, make, {.staleness = staleness}, clock_);
  }

  /// Takes a step in which element i of each gradient is value · (1 + i % 3).
  void step(float value, float lr) {
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      std::size_t element = 0;
      for (float& g : parameters_[i].gradient()) g = value * factor_of(element++);
      parameters_[i].contributed();
    }
    updater_->step(lr);
  }
  void meet() { updater_->meet(); }

  /// The amount by which each weight has fallen, divided by the factor of its element: the least
  /// and the greatest one.
  std::pair<float, float> falls() const {
    float least = 1e9f, greatest = -1e9f;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      std::size_t element = 0;
      for (const float weight : parameters_[i].value()) {
        const float fall = (1.0f - weight) / factor_of(element++);
        least = std::min(least, fall);
        greatest = std::max(greatest, fall);
      }
    }
    return {least, greatest};
  }

 private:
  static float factor_of(std::size_t element) { return static_cast<float>(1 + element % 3); }

  SteadyClock clock_;
  ParameterSet parameters_{3};
  std::unique_ptr<ParameterUpdater> updater_;
};

using Body = std::function<void(Runtime&, const test::RankRun&)>;

void run_job(int ranks, const Body& body, Options options = {}) {
  options.calibrate = "off";
  test::RuntimeJob job(ranks, options);
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    Runtime runtime = job.join(run.rank());
    body(runtime, run);
  });
}

/// Waits until `done` returns true, or another rank has failed.
void wait_until(const test::RankRun& run, const std::function<bool()>& done) {
  run.poll_until([] { return false; }, done);
}

// All values are small multiples of a power of two, so sums are exact, in whatever order pushes
// come. Rates differ between steps, and gradients between ranks.
TEST(AsyncUpdaterTest, AppliesEveryPushOnceWithItsRate) {
  for (const int ranks : {1, 2, 4}) {
    run_job(ranks, [&](Runtime& runtime, const test::RankRun&) {
      Model model(runtime, "sgd", std::nullopt);
      require(model.falls() == std::pair(0.0f, 0.0f), "the weights of rank 0");
      float sum = 0.0f;
      for (int step = 1; step <= 6; ++step) {
        const float lr = 0.25f * static_cast<float>(step);
        model.step(static_cast<float>(1 + runtime.rank()), lr);
        for (int rank = 0; rank < ranks; ++rank) {
          sum += lr / static_cast<float>(ranks) * static_cast<float>(1 + rank);
        }
        if (step % 3 != 0) continue;
        model.meet();
        require(model.falls() == std::pair(sum, sum), "the sum of all pushes");
      }
    });
  }
}

class StalenessTest : public testing::TestWithParam<std::uint64_t> {};

// Each step moves each weight by one, so a weight tells how many steps it contains.
TEST_P(StalenessTest, IsReachedAndNeverExceeded) {
  const std::uint64_t bound = GetParam();
  constexpr int kRanks = 4, kStraggler = 3;
  constexpr std::uint64_t kSteps = 25;
  std::atomic<std::uint64_t> begun[kRanks] = {}, ended[kRanks] = {};
  run_job(kRanks, [&](Runtime& runtime, const test::RankRun& run) {
    Model model(runtime, "sgd", bound);
    const int rank = runtime.rank();
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      // The straggler begins step k when all others have ended step k - 1 + bound.
      for (int other = 0; rank == kStraggler && other < kStraggler; ++other) {
        wait_until(run, [&] { return ended[other] >= std::min(step - 1 + bound, kSteps); });
      }
      ++begun[rank];
      model.step(1.0f, kRanks);
      for (const auto& each : begun) require(each + bound >= step, "a step that is too early");
      const std::uint64_t old = step - std::min(step, bound);
      require(model.falls().first >= static_cast<float>(step + (kRanks - 1) * old),
              "a weight that is too old");
      ++ended[rank];
    }
    model.meet();
    require(model.falls() == std::pair(100.0f, 100.0f), "the weights of all ranks");
  });
}

INSTANTIATE_TEST_SUITE_P(Bounds, StalenessTest, testing::Values(1, 2, 5));

// Rank 1 takes step k only after rank 0 has taken step 4 k. If rank 0 waited for it, the test would
// not end.
TEST(AsyncUpdaterTest, AStragglerStopsNoOther) {
  constexpr int kSteps = 40;
  std::atomic<int> fast{0};
  run_job(2, [&](Runtime& runtime, const test::RankRun& run) {
    Model model(runtime, "adamw", std::nullopt);
    for (int step = 1; step <= kSteps; ++step) {
      if (runtime.rank() == 1) wait_until(run, [&] { return fast >= std::min(4 * step, kSteps); });
      model.step(1.0f, 0.01f);
      if (runtime.rank() == 0) ++fast;
    }
    model.meet();
    // If the gradients of all steps are equal, AdamW moves each weight by the rate, whatever its
    // gradient. `falls` divides by factors from 1 to 3. Rounding adds less than 1e-6 per push.
    const auto [least, greatest] = model.falls();
    require(std::abs(greatest - 0.4f) < 1e-4f && std::abs(3.0f * least - 0.4f) < 1e-4f,
            "each push is a step");
  });
}

// Rank 1 comes after two waits of the time limit have ended.
TEST(AsyncUpdaterTest, MeetsRanksThatAreLaterThanTheTimeLimit) {
  std::atomic<bool> waits{false};
  const auto body = [&](Runtime& runtime, const test::RankRun& run) {
    Model model(runtime, "sgd", std::nullopt);
    if (runtime.rank() == 0) {
      model.step(1.0f, 2.0f);
      waits = true;
    } else {
      wait_until(run, [&] { return waits.load(); });
      std::vector<float> never(1);
      Ticket ticket = runtime.recv(never, 0, 1);
      for (int time = 0; time < 2; ++time) {
        const Error error = test::thrown_error([&] { ticket.wait(); });
        require(error.code == ErrorCode::kTimeout, "a time-out");
      }
      ticket.cancel();
      model.step(1.0f, 2.0f);
    }
    model.meet();
    require(model.falls() == std::pair(2.0f, 2.0f), "the weights of both ranks");
  };
  run_job(2, body, {.operation_timeout = std::chrono::milliseconds(300)});
}

TEST(AsyncUpdaterTest, OptionsThatDoNotGoTogetherAreNamed) {
  const auto refusal = [](const std::string& optimizer, const Options& options) -> std::string {
    try {
      run_job(
          1, [&](Runtime& own, const test::RankRun&) { Model(own, optimizer, 1); }, options);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "no error";
  };
  for (const char* of_norms : {"lars", "lamb"}) {
    EXPECT_THAT(refusal(of_norms, {}), HasSubstr("set --optimizer sgd or adamw"));
  }
  EXPECT_THAT(refusal("sgd", {.compression = "topk(0.1)"}),
              HasSubstr("--exchange async with --compression topk(0.1)"));
  EXPECT_THAT(refusal("sgd", {.wire_dtype = DType::kBFloat16}),
              HasSubstr("--exchange async with --compression none and --wire bfloat16"));
}

}  // namespace
}  // namespace kolo::trainer
