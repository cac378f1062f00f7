// Tests whole runtimes, one per thread, in typical programs.

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Sums out of place, twice with different buffers. The contribution must not change.
void out_of_place_works(Runtime& runtime, std::size_t count) {
  const int n = runtime.world_size();
  for (int use = 0; use < 2; ++use) {
    const std::vector<float> input(count, static_cast<float>(runtime.rank() + 1));
    std::vector<float> sum(count);
    runtime.all_reduce("apart " + std::to_string(count), {input, sum}).wait();
    const auto is = [](float expected) { return [=](float value) { return value == expected; }; };
    require(std::ranges::all_of(sum, is(static_cast<float>(n * (n + 1) / 2))), "out of place");
    require(std::ranges::all_of(input, is(static_cast<float>(runtime.rank() + 1))), "input");
  }
}

class RuntimeThreads : public testing::TestWithParam<int> {};

TEST_P(RuntimeThreads, AllReduceBroadcastAndBarrier) {
  std::atomic<int> arrived{0};
  RuntimeJob(GetParam(), test_options()).run([&](Runtime& runtime) {
    require(runtime.num_nodes() == 1 && runtime.local_rank() == runtime.rank(), "one node");
    for (int iteration = 0; iteration < 5; ++iteration) {
      for (const std::size_t count : std::initializer_list<std::size_t>{1, 3, 1000}) {
        all_reduce_works(runtime, "x" + std::to_string(count), count);
      }
      for (const std::size_t count : std::initializer_list<std::size_t>{1, 300'000}) {
        out_of_place_works(runtime, count);
      }
      all_reduce_works(runtime, "changes shape", static_cast<std::size_t>(iteration) + 1);
      for (int root = 0; root < runtime.world_size(); ++root) {
        std::vector<float> data(77, static_cast<float>(runtime.rank()));
        runtime.broadcast("weights " + std::to_string(root), view(data), root).wait();
        for (float value : data) require(value == static_cast<float>(root), "broadcast");
      }
      ++arrived;
      runtime.barrier().wait();
      require(arrived >= runtime.world_size() * (iteration + 1), "left the barrier too early");
    }
    require(runtime.network_bytes_sent() == 0, "one node has no network");
  });
}

TEST_P(RuntimeThreads, CollectivesOfParts) {
  Options options = test_options();
  options.arena_bytes = std::size_t{16} << 20;
  RuntimeJob(GetParam(), options).run([](Runtime& runtime) {
    const auto ranks = static_cast<std::size_t>(runtime.world_size());
    const auto mine = static_cast<float>(runtime.rank() + 1);
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    const auto part_of_rank = [](std::size_t rank) { return static_cast<float>(rank + 1); };
    for (const std::size_t count : std::initializer_list<std::size_t>{1, 1000, 40'000}) {
      const std::string size = std::to_string(count);
      for (int use = 0; use < 3; ++use) {
        const std::vector<float> one(count, mine);
        std::vector<float> all(count * ranks), spread(count * ranks), part(count);
        runtime.all_gather("all_gather " + size, {one, all}).wait();
        for (std::size_t i = 0; i < all.size(); ++i) {
          require(all[i] == part_of_rank(i / count), "all_gather");
        }
        Ticket ticket = runtime.all_to_all("all_to_all " + size, {all, spread});
        runtime.reduce_scatter("reduce_scatter " + size, {all, part}).wait();
        for (float value : part)
          require(value == mine * static_cast<float>(ranks), "reduce_scatter");
        ticket.wait();
        for (float value : spread) require(value == mine, "all_to_all");
        runtime.reduce("reduce " + size, {one, part}, 0).wait();
        if (runtime.rank() == 0) {
          for (float value : part) require(value == sum, "reduce");
        }
        runtime.scatter("scatter " + size, {all, part}, 0).wait();
        for (float value : part) require(value == mine, "scatter");
        runtime.gather("gather " + size, {part, spread}, 0).wait();
        if (runtime.rank() == 0) require(spread == all, "gather");
      }
    }
  });
}

TEST_P(RuntimeThreads, ManyAsynchronousOperationsInAnyOrder) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    constexpr std::size_t kOperations = 20;
    std::vector<std::vector<float>> data(kOperations);
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < kOperations; ++i) {
      // Each rank begins at another position in a cycle of names.
      const std::size_t which = (i + 7 * static_cast<std::size_t>(runtime.rank())) % kOperations;
      data[which].assign(10 + which, 1.0F);
      tickets.push_back(
          runtime.all_reduce("operation " + std::to_string(which), view(data[which])));
    }
    for (Ticket& ticket : tickets) ticket.wait();
    for (Ticket& ticket : tickets) require(ticket.done(), "a ticket stays done");
    for (const auto& buffer : data) {
      for (float value : buffer) {
        require(value == static_cast<float>(runtime.world_size()), "sum");
      }
    }
  });
}

TEST_P(RuntimeThreads, UserThreadsCallAtTheSameTime) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    run_ranks(3, [&](const RankRun& thread) {
      for (int i = 0; i < 5; ++i) {
        all_reduce_works(runtime, "of thread " + std::to_string(thread.rank()));
      }
    });
  });
}

TEST_P(RuntimeThreads, AveragesGradientsThatSeveralThreadsMark) {
  Texts hashes(GetParam());
  RuntimeJob(GetParam(), test_options()).run([&](Runtime& runtime) {
    const std::vector<std::size_t> counts = {100, 1, 33, 2000, 64, 7};
    std::vector<std::vector<float>> memory;
    std::vector<GradientSpec> specs;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      memory.emplace_back(counts[i]);
      specs.push_back({.name = "g" + std::to_string(i), .shape = {counts[i]}});
      if (i % 2 == 1) specs.back().data = memory.back().data();
    }
    GradientSet set = runtime.register_gradients("model", specs);
    hashes.set(runtime.rank(), std::to_string(set.plan().hash));
    require(set.size() == counts.size() && set.plan().gradients == counts.size(), "size");
    require(set.view(1).data == memory[1].data(), "lives where the caller says");
    const int n = runtime.world_size();
    for (int iteration = 1; iteration <= 5; ++iteration) {
      run_ranks(2, [&](const RankRun& thread) {
        for (auto g = static_cast<std::size_t>(thread.rank()); g < counts.size(); g += 2) {
          auto* values = static_cast<float*>(set.view(g).data);
          std::fill_n(values, counts[g], static_cast<float>((runtime.rank() + 1) * 2 * iteration));
          set.ready(g);
        }
      });
      set.wait();
      for (std::size_t g = 0; g < counts.size(); ++g) {
        const auto* values = static_cast<const float*>(set.view(g).data);
        for (std::size_t i = 0; i < counts[g]; ++i) {
          require(values[i] == static_cast<float>((n + 1) * iteration),
                  "gradient " + std::to_string(g) + " is " + std::to_string(values[i]));
        }
      }
    }
  });
  EXPECT_THAT(hashes.all(), Each(hashes.all()[0]));
}

// Gradients are waited for from first to last, as in an update. Sometimes the engine finishes
// gradients before they are waited for.
TEST_P(RuntimeThreads, WaitsForGradientsOneByOne) {
  RuntimeJob job(GetParam(), test_options());
  run_ranks(job.size(), [&](const RankRun& run) {
    Options options = job.options();
    options.fusion_bytes = 4096;
    Runtime runtime = job.join(run.rank(), options);
    constexpr std::size_t kGradients = 20;
    std::vector<GradientSpec> specs;
    for (std::size_t i = 0; i < kGradients; ++i) {
      specs.push_back({.name = "g" + std::to_string(i), .shape = {300 + i}});
    }
    GradientSet set = runtime.register_gradients("model", specs);
    require(set.plan().buckets > 2, "several buckets");
    for (int iteration = 0; iteration < 20; ++iteration) {
      for (std::size_t g = kGradients; g-- > 0;) {
        std::fill_n(static_cast<float*>(set.view(g).data), specs[g].shape[0],
                    static_cast<float>(runtime.rank() * 2 + iteration));
        set.ready(g);
      }
      if (iteration % 5 == 4) set.wait(kGradients - 1);
      for (std::size_t g = 0; g < kGradients; ++g) {
        set.wait(g);
        const auto* values = static_cast<const float*>(set.view(g).data);
        const auto expected = static_cast<float>(runtime.world_size() - 1 + iteration);
        require(std::all_of(values, values + specs[g].shape[0],
                            [=](float value) { return value == expected; }),
                "gradient " + std::to_string(g) + " is " + std::to_string(values[0]));
      }
      set.wait();
    }
  });
}

// The weights are sent with the last mark, by any thread.
TEST_P(RuntimeThreads, DividesGradientsThatSeveralThreadsMarkByTheirWeights) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    constexpr std::size_t kGradients = 7;
    constexpr std::size_t kCount = 200;
    std::vector<GradientSpec> specs;
    for (std::size_t i = 0; i < kGradients; ++i) {
      specs.push_back({.name = "g" + std::to_string(i), .shape = {kCount}});
    }
    GradientSet set = runtime.register_gradients("model", specs, {.divisor = Divisor::kSamples});
    const auto samples = [](int rank) { return static_cast<float>(1 << rank); };
    const auto has = [&](int rank, std::size_t gradient) {
      return runtime.world_size() == 1 || gradient % 2 == 0 || rank % 2 == 0;
    };
    set.set_samples(samples(runtime.rank()));
    for (int iteration = 0; iteration < 5; ++iteration) {
      run_ranks(3, [&](const RankRun& thread) {
        for (auto g = static_cast<std::size_t>(thread.rank()); g < kGradients; g += 3) {
          std::fill_n(static_cast<float*>(set.view(g).data), kCount,
                      static_cast<float>(runtime.rank()));
          if (has(runtime.rank(), g)) {
            set.ready(g);
          } else {
            set.absent(g);
          }
        }
      });
      set.wait();
      for (std::size_t g = 0; g < kGradients; ++g) {
        float sum = 0, weights = 0;
        for (int rank = 0; rank < runtime.world_size(); ++rank) {
          if (!has(rank, g)) continue;
          sum += samples(rank) * static_cast<float>(rank);
          weights += samples(rank);
        }
        const float value = static_cast<const float*>(set.view(g).data)[kCount - 1];
        require(std::abs(value - sum / weights) < 1e-5F,
                "gradient " + std::to_string(g) + " is " + std::to_string(value));
      }
    }
  });
}

// The engine's thread drives operations for which no thread waits. That must hold even if earlier
// uses of the name were waited for immediately, so that a wait is expected.
TEST_P(RuntimeThreads, WorkGoesOnWhileNobodyWaits) {
  std::atomic<int> arrived{0};
  RuntimeJob job(GetParam(), test_options());
  run_ranks(job.size(), [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    for (int round = 0; round < 20; ++round) {
      std::vector<float> data(5000, 1.0F);
      runtime.all_reduce("x", data).wait();
      data.assign(5000, 1.0F);
      const Ticket ticket = runtime.all_reduce("x", data);
      run.poll_until([] { return false; }, [&] { return ticket.done(); });
      require(data[4999] == static_cast<float>(run.world_size()), "sum");
    }
    meet(run, arrived);
  });
}

// After many prompt waits the engine expects another one. The thread waits only after all other
// ranks have finished, and they need its operations in flight to finish.
TEST_P(RuntimeThreads, AWaitThatDoesNotComeAtOnceHoldsUpNobody) {
  std::atomic<int> through{0};
  RuntimeJob job(GetParam(), test_options());
  run_ranks(job.size(), [&](const RankRun& run) {
    Runtime runtime = job.join(run.rank());
    GradientSet set = runtime.register_gradients("model", {{.name = "g", .shape = {20'000}}});
    auto* values = static_cast<float*>(set.view(0).data);
    for (int iteration = 0; iteration < 50; ++iteration) {
      std::fill_n(values, 20'000, static_cast<float>(iteration));
      set.ready(0);
      if (iteration % 10 == 9 && run.rank() == 0) {
        const int others = (run.world_size() - 1) * (iteration / 10 + 1);
        run.poll_until([] { return false; }, [&] { return through >= others; });
      }
      set.wait();
      if (iteration % 10 == 9 && run.rank() != 0) ++through;
      require(values[19'999] == static_cast<float>(iteration), "average");
    }
  });
}

// Threads that wait for a set, for tickets and in blocking calls drive the engine alternately, next
// to calls that do not wait.
TEST_P(RuntimeThreads, ThreadsThatWaitForDifferentThingsDriveInTurns) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    GradientSet set = runtime.register_gradients(
        "model", {{.name = "a", .shape = {3000}}, {.name = "b", .shape = {10}}});
    const auto n = static_cast<float>(runtime.world_size());
    run_ranks(4, [&](const RankRun& thread) {
      for (int i = 0; i < 40; ++i) {
        if (thread.rank() == 0) {
          for (std::size_t g : {std::size_t{0}, std::size_t{1}}) {
            static_cast<float*>(set.view(g).data)[0] = static_cast<float>(runtime.rank());
            set.ready(g);
          }
          set.wait();
          require(static_cast<float*>(set.view(1).data)[0] == (n - 1) / 2, "average");
        } else if (thread.rank() == 1) {
          all_reduce_works(runtime, "blocking", 100);
        } else if (thread.rank() == 2) {
          std::vector<float> one(700, 1.0F), two(7, 2.0F);
          Ticket first = runtime.all_reduce("first", view(one));
          Ticket second = runtime.all_reduce("second", view(two));
          second.wait();
          first.wait();
          require(one[699] == n && two[6] == 2 * n, "sum");
        } else {
          runtime.barrier().wait();
        }
      }
    });
  });
}

// Each thread of one process runs a rank of two jobs. The ranks are opposite in the two jobs.
TEST_P(RuntimeThreads, TwoJobsInOneProcess) {
  RuntimeJob first(GetParam(), test_options()), second(GetParam(), test_options());
  run_ranks(first.size(), [&](const RankRun& run) {
    Runtime a = first.join(run.rank());
    Runtime b = second.join(run.world_size() - 1 - run.rank());
    require(b.rank() == run.world_size() - 1 - run.rank(), "rank");
    for (int i = 0; i < 3; ++i) {
      std::vector<float> in_a(10, 1.0F), in_b(20, 10.0F);
      Ticket ticket = a.all_reduce("x", view(in_a));
      b.all_reduce("x", view(in_b)).wait();
      ticket.wait();
      require(in_a[9] == static_cast<float>(run.world_size()), "first job");
      require(in_b[19] == static_cast<float>(10 * run.world_size()), "second job");
    }
    a.close();
    all_reduce_works(b, "after the end of the first");
  });
}

TEST_P(RuntimeThreads, CloseIsFinalAndMayBeRepeated) {
  Texts errors(GetParam());
  RuntimeJob(GetParam(), test_options()).run([&](Runtime& runtime) {
    all_reduce_works(runtime, "x");
    runtime.close();
    runtime.close();
    errors.set(runtime.rank(), error_of([&] { runtime.barrier().wait(); }));
    require(!error_of([&] {
               runtime.register_gradients("late", {{.name = "g", .shape = {1}}});
             }).empty(),
            "registered after the end");
    const Runtime moved = std::move(runtime);  // destroys closed and moved-from runtimes
  });
  EXPECT_THAT(errors.all(), Each(AllOf(HasSubstr("shutdown"), HasSubstr("closed"))));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RuntimeThreads, testing::Values(1, 2, 4));

}  // namespace
}  // namespace kolo::test
