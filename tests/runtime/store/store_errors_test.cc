// Errors of parameter stores: of calls, ranks that differ, updaters, lost and slow ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/store/parameter_store.h"
#include "tests/runtime/store/store_job.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StoreErrors, OfACallNameTheKey) {
  run_store(2, [](Runtime& runtime) {
    ParameterStore store(runtime, store_of("dist_sync"));
    std::vector<float> six(6), five(5);
    std::vector<int> whole(6);
    store.init("w", six, 2);
    const auto error_says = [](const std::string& text, const std::function<void()>& call) {
      const std::string error = error_of(call);
      require(error.starts_with("usage: ") && error.find(text) != std::string::npos,
              "'" + text + "' is not in: " + error);
    };
    error_says("pull of 'v': the store has no such key", [&] { store.pull("v", six); });
    error_says("push of 'v'", [&] { store.push("v", six); });
    error_says("init of 'w': the key exists", [&] { store.init("w", six); });
    error_says("init of 'v': 5 elements in rows of 2", [&] { store.init("v", five, 2); });
    error_says("push of 'w': float32 [5], and the key is float32 [6]",
               [&] { store.push("w", five); });
    error_says("push of 'w': there is no value", [&] { store.push("w", {}); });
    error_says("pull of 'w': int32 [6], and the key is float32 [6]",
               [&] { store.pull("w", whole); });
    error_says("row 3 of 3",
               [&] { store.row_sparse_pull("w", six, std::vector<std::int64_t>{3}); });
    error_says("row_sparse_pull of 'w': float32 [6]",
               [&] { store.row_sparse_pull("w", six, std::vector<std::int64_t>{1}); });
    error_says("'lamb' is not one of", [&] { store.set_optimizer({.name = "lamb"}); });
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::pair<StoreOptimizer, const char*> wrong_settings[] = {
        {{.lr = -1}, "the optimizer's lr is -1, and must be at least 0"},
        {{.lr = nan}, "lr is nan"},
        {{.lr = std::numeric_limits<double>::infinity()}, "lr is inf"},
        {{.momentum = 1.5}, "momentum is 1.5, and must be from 0 to 1"},
        {{.weight_decay = -0.5}, "weight_decay is -0.5"},
        {{.name = "adam", .beta1 = 1}, "beta1 is 1, and must be from 0 to less than 1"},
        {{.name = "adam", .beta2 = -1}, "beta2 is -1"},
        {{.name = "adamw", .epsilon = 0}, "epsilon is 0, and must be above 0"},
        {{.rescale = nan}, "rescale is nan"}};
    for (const auto& [wrong, text] : wrong_settings) {
      error_says(text, [&, &settings = wrong] { store.set_optimizer(settings); });
    }
    store.init("n", whole);
    store.set_optimizer({});
    error_says("take float32, and the key is int32", [&] { store.push("n", whole); });
    require(pulled<float>(store, "w", 6) == six, "the store goes on");
    store.close();
    error_says("the store has been closed", [&] { store.pull("w", six); });
    for (const char* wrong : {"sync", "local with a bound", "servers twice", "a server too high"}) {
      StoreOptions options = store_of(wrong == std::string("sync") ? "sync" : "dist_async");
      if (wrong[0] == 'l') options = store_of("local"), options.staleness = 1;
      if (wrong[0] == 's') options.servers = {1, 1};
      if (wrong[0] == 'a') options.servers = {2};
      error_says("store", [&] { const ParameterStore none(runtime, options); });
    }
  });
}

TEST(StoreErrors, OfRanksThatDiffer) {
  run_store(2, [](Runtime& runtime) {
    StoreOptions options = store_of("dist_async");
    if (runtime.rank() == 1) options.servers = {1};
    require(error_of([&] { const ParameterStore none(runtime, options); }).starts_with("mismatch"),
            "options");
    ParameterStore store(runtime, store_of("dist_async"));
    const std::vector<float> mine(static_cast<std::size_t>(4 + runtime.rank()));
    require(error_of([&] { store.init("w", mine); }).starts_with("mismatch"), "shapes");
    require(error_of([&] {
              store.set_optimizer({.lr = 0.1 * (1 + runtime.rank())});
            }).starts_with("mismatch"),
            "optimizers");
    // The store's thread does not hide that all threads of the program wait.
    const std::string name = runtime.rank() == 0 ? "x" : "y";
    std::vector<float> data(4);
    require(error_of([&] { runtime.all_reduce(name, view(data)).wait(); }).starts_with("mismatch"),
            "a mismatch beside a store");
  });
}

TEST(StoreErrors, OfAnUpdaterEndTheJob) {
  for (const char* type : {"dist_sync", "dist_async"}) {
    Texts texts(2);
    run_ranks(2, [&, job = std::make_shared<RuntimeJob>(2, test_options())](const RankRun& run) {
      Runtime runtime = job->join(run.rank());
      StoreOptions options = store_of(type);
      options.servers = {1};
      texts.set(run.rank(), error_of([&] {
                  ParameterStore store(runtime, options);
                  store.init("w", std::vector<float>(5));
                  store.set_updater([](const StoreUpdate& update) {
                    throw UsageError("no update of " + std::string(update.key));
                  });
                  store.push("w", std::vector<float>(5));
                  store.barrier();
                }));
    });
    for (const std::string& text : texts.all()) EXPECT_THAT(text, HasSubstr("no update of w"));
  }
}

TEST(StoreErrors, ALostRankIsReportedToAllWhoWait) {
  Texts texts(3);
  run_ranks(3, [&, job = std::make_shared<RuntimeJob>(3, test_options())](const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    texts.set(run.rank(), error_of([&] {
                StoreOptions options = store_of("dist_async");
                options.staleness = 0;
                ParameterStore store(runtime, options);
                store.init("w", std::vector<float>(50));
                if (run.rank() == 1) return runtime.abort("it has no more power");
                store.push("w", std::vector<float>(50));
                std::vector<float> out(50);
                store.pull("w", out);
              }));
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(texts.all()[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("peer lost"), HasSubstr("it has no more power")));
  }
}

TEST(StoreErrors, AWaitForASlowWorkerEnds) {
  Options options = test_options();
  options.operation_timeout = std::chrono::milliseconds(100);
  std::atomic<bool> has_failed{false};
  run_ranks(2, [&, job = std::make_shared<RuntimeJob>(2, options)](const RankRun& run) {
    Runtime runtime = job->join(run.rank());
    StoreOptions settings = store_of("dist_async");
    settings.staleness = 0;
    ParameterStore store(runtime, settings);
    store.init("w", std::vector<float>(50));
    const std::vector<float> one(50, 1.0f);
    std::vector<float> out(50);
    if (run.rank() == 0) {
      store.push("w", one);
      EXPECT_THAT(error_of([&] { store.pull("w", out); }),
                  AllOf(HasSubstr("time-out"), HasSubstr("'w', which waits for the slowest")));
      has_failed = true;
    } else {
      run.poll_until([] { return false; }, [&] { return has_failed.load(); });
      store.push("w", one);
    }
    for (;;) {  // The wait goes on.
      const std::string error = error_of([&] { store.pull("w", out); });
      if (error.empty()) break;
      EXPECT_THAT(error, HasSubstr("time-out"));
    }
    while (!error_of([&] { store.close(); }).empty()) {
    }
  });
}

}  // namespace
}  // namespace kolo::test
