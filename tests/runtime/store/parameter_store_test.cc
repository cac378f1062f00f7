// Parameter stores of whole runtimes, one per thread. Values identify rank, key and index.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/store/parameter_store.h"
#include "runtime/store/store_server.h"
#include "tests/runtime/store/store_job.h"

namespace kolo::test {
namespace {

template <typename T>
void check_key(ParameterStore& store, int key, std::size_t rows, std::size_t width) {
  const std::size_t count = rows * width;
  const std::string name = "key " + std::to_string(key);
  store.init(name, values_of<T>(10 + store.rank(), key, count), width);
  std::vector<T> expected = values_of<T>(10, key, count);
  require(pulled<T>(store, name, count) == expected, name + ": rank 0's value after init");
  store.barrier();

  const std::vector<T> mine = values_of<T>(store.rank(), key, count), more(count, T(2));
  std::vector<T> sum(count);
  for (int rank = 0; rank < store.num_workers(); ++rank) {
    sum = sum_of(sum_of(sum, values_of<T>(rank, key, count)), more);
  }
  store.push(name, std::vector<ConstBuffer>{mine, more});
  store.barrier();
  expected = sum_of(expected, sum);
  require(pulled<T>(store, name, count) == expected, name + ": after a push of two values");
  store.barrier();

  std::vector<T> out(count);
  store.push_pull(name, mine, out);
  if (store.options().type == "dist_async") store.barrier();
  for (int rank = 0; rank < store.num_workers(); ++rank) {
    expected = sum_of(expected, values_of<T>(rank, key, count));
  }
  if (store.options().type != "dist_async") require(out == expected, name + ": push_pull");
  require(pulled<T>(store, name, count) == expected, name + ": after push_pull");

  const std::vector<std::int64_t> wanted{static_cast<std::int64_t>(rows) - 1, 0, 0};
  std::vector<T> some(wanted.size() * width);
  store.row_sparse_pull(name, some, wanted);
  for (std::size_t i = 0; i < some.size(); ++i) {
    const auto row = static_cast<std::size_t>(wanted[i / width]);
    require(some[i] == expected[row * width + i % width], name + ": rows");
  }
  store.barrier();
}

class StoreTypes : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(StoreTypes, MergeAndRead) {
  const auto& [type, ranks] = GetParam();
  run_store(ranks, [&, type = type](Runtime& runtime) {
    ParameterStore store(runtime, store_of(type));
    require(store.num_workers() == (type == "local" ? 1 : runtime.size()), "workers");
    store.set_updater(add_pushed<float>);
    check_key<float>(store, 1, 1, 1);
    check_key<float>(store, 2, 5, 3);       // below the limit: on one server
    check_key<float>(store, 3, 11, 7);      // above it
    check_key<float>(store, 4, 2, 40);      // fewer rows than servers
    check_key<float>(store, 5, 1000, 100);  // longer than an unsolicited message
    store.set_updater(add_pushed<double>);
    check_key<double>(store, 6, 11, 7);
    store.set_updater(add_pushed<std::int32_t>);
    check_key<std::int32_t>(store, 7, 11, 7);
    store.close();
  });
}

TEST_P(StoreTypes, AssignWithoutUpdater) {
  const auto& [type, ranks] = GetParam();
  run_store(ranks, [&, type = type](Runtime& runtime) {
    ParameterStore store(runtime, store_of(type));
    const bool is_async = type == "dist_async";
    const std::size_t count = 50;
    store.init("w", values_of<float>(7, 0, count));
    const int last = store.num_workers() - 1;
    std::vector<float> sum(count);
    for (int rank = is_async ? last : 0; rank <= last; ++rank) {
      sum = sum_of(sum, values_of<float>(rank, 1, count));
    }
    const std::vector<float> mine = values_of<float>(store.rank(), 1, count);
    if (!is_async || store.rank() == last) store.push("w", mine);
    store.barrier();
    require(pulled<float>(store, "w", count) == sum, "the assigned value");
    store.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(All, StoreTypes,
                         testing::Combine(testing::Values("local", "device", "dist_sync",
                                                          "dist_async"),
                                          testing::Values(1, 3)));

/// Bits of SGD with momentum by all-reduce, over 10 steps.
class StoreBits : public testing::TestWithParam<int> {};

TEST_P(StoreBits, DistSyncIsTrainingByAllReduce) {
  run_store(GetParam(), [](Runtime& runtime) {
    const StoreOptimizer sgd{
        .name = "sgd", .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3, .rescale = 1.0 / 3};
    ParameterStore store(runtime, store_of("dist_sync"));
    store.set_optimizer(sgd);
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70'001}}) {
      const std::string key = "w" + std::to_string(count);
      std::mt19937 random(static_cast<unsigned>(count) + static_cast<unsigned>(runtime.rank()) * 7);
      std::normal_distribution<float> normal;
      std::vector<float> weights(count, 0.3f), gradient(count), out(count);
      store.init(key, weights);
      const StoreUpdater update = make_updater(sgd);
      for (int step = 0; step < 10; ++step) {
        std::ranges::generate(gradient, [&] { return normal(random); });
        if (step % 2 == 0) {
          store.push(key, gradient);
          store.pull(key, out);
        } else {
          store.push_pull(key, gradient, out);
        }
        runtime.all_reduce("gradient " + key, view(gradient)).wait();
        update({key, 0, weights, gradient});
        require(out == weights, key + ": bits of step " + std::to_string(step));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StoreBits, testing::Values(1, 2, 3, 4));

// --- dist_async ---------------------------------------------------------------------------------

/// Worker 1 makes its push k only after worker 0 has made its push 4 k; a store in which worker 0
/// waited for worker 1 would never end.
TEST(AsyncStore, ASlowWorkerDelaysNoOther) {
  constexpr int kPushes = 40;
  std::atomic<int> fast{0};
  run_store(2, [&](Runtime& runtime) {
    ParameterStore store(runtime, store_of("dist_async"));
    store.set_updater(add_pushed<float>);
    store.init("w", std::vector<float>(100));
    const std::vector<float> one(100, 1.0f);
    std::vector<float> out(100);
    const int pushes = runtime.rank() == 0 ? kPushes : kPushes / 4;
    for (int push = 1; push <= pushes; ++push) {
      while (runtime.rank() == 1 && fast < 4 * push) std::this_thread::yield();
      store.push("w", one);
      store.pull("w", out);
      if (runtime.rank() == 0) ++fast;
    }
    store.barrier();
    const StoreVersion version = store.pull("w", out);
    require(out == std::vector<float>(100, kPushes * 1.25f), "the sum of all pushes");
    require(version.updates == kPushes + kPushes / 4, "updates");
    require(version.slowest == kPushes / 4, "the slowest worker");
    store.barrier();
  });
}

/// Worker 1 pushes only after a pull of worker 0 that asks for nothing more than its own pushes.
TEST(AsyncStore, APullWaitsForAsManyPushesAsItNames) {
  constexpr std::uint64_t kPushes = 5;
  std::atomic<bool> has_pulled{false};
  run_store(3, [&](Runtime& runtime) {
    ParameterStore store(runtime, store_of("dist_async"));
    store.set_updater(add_pushed<float>);
    store.init("w", std::vector<float>(100));
    const std::vector<float> one(100, 1.0f);
    std::vector<float> out(100);
    if (runtime.rank() == 0) {
      store.push("w", one);
      store.pull("w", out);
      has_pulled = true;
    }
    while (!has_pulled) std::this_thread::yield();
    for (std::uint64_t push = runtime.rank() == 0 ? 1 : 0; push < kPushes; ++push) {
      store.push("w", one);
    }
    require(store.pull("w", out, kPushes).updates == 3 * kPushes, "updates");
    require(out == std::vector<float>(100, 3.0f * kPushes), "the sum of all pushes");
  });
}

/// The updater gets the rate of each push, and pushes of one memory may differ.
TEST_P(StoreTypes, GiveTheRateToTheUpdater) {
  const auto& [type, ranks] = GetParam();
  run_store(ranks, [&, type = type](Runtime& runtime) {
    ParameterStore store(runtime, store_of(type));
    store.set_updater([](const StoreUpdate& update) {
      static_cast<float*>(update.value.data)[0] += static_cast<float>(update.rate);
    });
    store.init("w", std::vector<float>(1));
    const std::vector<float> any(1);
    const bool is_async = store.options().type == "dist_async";
    for (int push = 0; push < 3; ++push) {
      store.push("w", any, is_async ? store.rank() + 0.5 : push + 0.25);
    }
    store.barrier();
    const int workers = store.num_workers();
    const float of_async = 1.5f * static_cast<float>(workers * workers);
    require(pulled<float>(store, "w", 1)[0] == (is_async ? of_async : 3.75f), "the sum of rates");
    store.barrier();
  });
}

/// Earlier pushes wait at the servers while ranks set an updater.
TEST(AsyncStore, AnUpdaterIsNotForEarlierPushes) {
  run_store(2, [](Runtime& runtime) {
    ParameterStore store(runtime, store_of("dist_async"));
    const std::size_t count = 200'000;
    store.init("w", std::vector<float>(count));
    const std::vector<float> one(count, 1.0f);
    if (store.rank() == 1) {
      for (int push = 0; push < 40; ++push) {
        store.push("w", values_of<float>(1, push, count));
      }
    }
    store.set_updater(add_pushed<float>);
    store.push("w", one);
    store.barrier();
    const std::vector<float> two(count, 2.0f);
    require(pulled<float>(store, "w", count) == sum_of(values_of<float>(1, 39, count), two),
            "the last assigned value, and a push of each rank");
    store.barrier();
  });
}

/// With momentum 1 and equal pushes, the velocity after k updates is k pushes.
TEST_P(StoreTypes, AChangedLearningRateKeepsTheStateOfTheOptimizer) {
  const auto& [type, ranks] = GetParam();
  run_store(ranks, [&, type = type](Runtime& runtime) {
    ParameterStore store(runtime, store_of(type));
    const bool is_async = store.options().type == "dist_async";
    const int workers = store.num_workers();
    const int updates = is_async ? 2 * workers : 2;  // with each learning rate
    const double pushed = 0.25 * (is_async ? 1 : workers);
    const std::vector<float> gradient(5, -0.25f);
    double expected = 0;
    int update = 0;
    store.init("w", std::vector<float>(5));
    for (const double lr : {0.25, 0.5}) {
      store.set_optimizer({.name = "sgd", .lr = lr, .momentum = 1.0});
      for (int push = 0; push < 2; ++push) store.push("w", gradient);
      for (int i = 0; i < updates; ++i) expected += lr * pushed * ++update;
    }
    store.set_optimizer({.name = "adam"});
    store.set_optimizer({.name = "sgd", .lr = 0.5, .momentum = 1.0});  // begins anew
    store.push("w", gradient);
    for (int i = 1; i <= updates / 2; ++i) expected += 0.5 * pushed * i;
    store.barrier();
    require(pulled<float>(store, "w", 5)[4] == static_cast<float>(expected), "the velocity");
    store.barrier();
  });
}

class Staleness : public testing::TestWithParam<int> {};

TEST_P(Staleness, IsNeverExceeded) {
  const auto bound = static_cast<std::uint64_t>(GetParam());
  constexpr int kRanks = 3, kPushes = 30;
  std::atomic<std::uint64_t> begun[kRanks] = {};
  run_store(kRanks, [&](Runtime& runtime) {
    StoreOptions options = store_of("dist_async");
    options.staleness = bound;
    ParameterStore store(runtime, options);
    store.set_updater(add_pushed<float>);
    store.init("w", std::vector<float>(100));
    const std::vector<float> one(100, 1.0f);
    std::vector<float> out(100);
    std::mt19937 random(static_cast<unsigned>(runtime.rank()));
    const auto check_all = [&](std::uint64_t mine, const std::string& what) {
      for (const auto& each : begun) require(each + bound >= mine, what);
    };
    for (std::uint64_t push = 1; push <= kPushes; ++push) {
      for (auto pause = random() % (runtime.rank() == 2 ? 400 : 20); pause > 0; --pause) {
        std::this_thread::yield();
      }
      ++begun[runtime.rank()];
      store.push("w", one);
      check_all(push - 1, "a push that was too early");
      if (random() % 3 == 0) continue;
      const StoreVersion version = store.pull("w", out);
      check_all(push, "a pull that was too early");
      require(version.slowest + bound >= push, "a version that is too old");
      // Each element has all pushes of this worker, and those of two that are no slower.
      require(*std::ranges::min_element(out) >= static_cast<float>(2 * version.slowest + push),
              "a value that is too old");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Bounds, Staleness, testing::Values(0, 1, 4));

TEST(AsyncStore, WaitsNoLongerForAWorkerThatCloses) {
  run_store(2, [](Runtime& runtime) {
    StoreOptions options = store_of("dist_async");
    options.staleness = 0;
    ParameterStore store(runtime, options);
    store.init("w", std::vector<float>(5));
    const std::vector<float> one(5, 1.0f);
    for (int push = 0; push < (runtime.rank() == 0 ? 6 : 1); ++push) {
      store.push("w", one);
    }
    store.close();
  });
}

TEST(AsyncStore, BytesInFlightMayBeFew) {
  run_store(3, [](Runtime& runtime) {
    StoreOptions options = store_of("dist_async");
    options.in_flight_bytes = 1;
    options.servers = {2, 0};
    ParameterStore store(runtime, options);
    std::atomic<int> updates{0};
    store.set_updater([&](const StoreUpdate& update) {
      add_pushed<float>(update);
      ++updates;
    });
    const std::size_t count = 200'000;
    store.init("w", values_of<float>(0, 0, count));
    const std::vector<float> one(count, 1.0f);
    for (int push = 0; push < 5; ++push) store.push("w", one);
    store.barrier();
    const std::vector<float> more(count, 15.0f);
    require(pulled<float>(store, "w", count) == sum_of(values_of<float>(0, 0, count), more), "sum");
    require(updates == (runtime.rank() == 1 ? 0 : 15), "updates on the servers alone");
    store.barrier();
  });
}

}  // namespace
}  // namespace kolo::test
