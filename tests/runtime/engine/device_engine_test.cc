// Tests gradients in device memory, on devices that are host memory with seeded streams. Engines,
// schedules and the order of launches are those of a GPU job. Every interleaving of engines and
// streams can be repeated.

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/support/allocations.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::JobDevices;

/// Returns small integers, so that sums are exact in any order.
float element(int rank, std::size_t index, int iteration) {
  return static_cast<float>((rank + 1) * (static_cast<int>(index % 11) + 1) * (iteration + 1));
}

/// A training loop on every rank. A separate stream writes the gradients after they are marked.
class DeviceTraining {
 public:
  DeviceTraining(const std::vector<int>& nodes, const Options& options, std::uint64_t seed,
                 std::vector<std::size_t> counts, const JobDevices& devices = {})
      : job(ProcessGrid::with_node_sizes(nodes), options, seed, devices),
        counts_(std::move(counts)),
        random_(seed) {}

  void register_all(bool in_arena, GradientOptions options = {}) {
    for (int rank = 0; rank < job.world_size(); ++rank) {
      std::vector<GradientSpec> specs;
      for (std::size_t count : counts_) {
        specs.push_back({.name = "g" + std::to_string(specs.size()),
                         .shape = {count},
                         .memory = MemoryKind::kDevice});
        if (in_arena) continue;
        memory_.push_back(job.device(rank).allocate(count * sizeof(float), MemoryKind::kDevice));
        specs.back().data = memory_.back().data();
      }
      sets.push_back(std::make_shared<GradientSetState>("model", specs, options));
      streams.push_back(job.device(rank).make_stream());
      job.engine(rank).submit(sets.back());
    }
    job.run_until_registered(sets);
    for (const auto& set : sets) set->registration().wait(std::chrono::milliseconds(1));
  }

  /// Marks each gradient and enqueues its write, in a different order on every rank. No write has
  /// run before its mark.
  void mark_all(int iteration) {
    for (int rank = 0; rank < job.world_size(); ++rank) {
      std::vector<std::size_t> order(counts_.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random_);
      for (std::size_t gradient : order) mark(rank, gradient, iteration);
    }
  }

  void mark(int rank, std::size_t gradient, int iteration) {
    write(rank, gradient, iteration);
    test::mark(job.engine(rank), set(rank), gradient, NativeStream{&stream(rank)});
  }

  /// Enqueues the write of a gradient.
  void write(int rank, std::size_t gradient, int iteration) {
    const float scale = unit * static_cast<float>(job.world_size());
    stream(rank).enqueue([view = set(rank).view(gradient), rank, gradient, iteration, scale] {
      auto* values = static_cast<float*>(view.data);
      for (std::size_t i = 0; i < view.count; ++i) {
        values[i] = scale * element(rank, i + gradient, iteration);
      }
      return true;
    });
  }

  using Has = std::function<bool(int rank, std::size_t gradient)>;

  /// Expects the averages over all ranks of the gradients for which `has` returns true.
  void expect_averages(
      int iteration, const Has& has = [](int, std::size_t) { return true; }) {
    for (int rank = 0; rank < job.world_size(); ++rank) {
      for (std::size_t gradient = 0; gradient < counts_.size(); ++gradient) {
        const BufferView view = set(rank).view(gradient);
        for (std::size_t i = 0; i < view.count; ++i) {
          float sum = 0;
          for (int other = 0; other < job.world_size(); ++other) {
            if (has(other, gradient)) sum += element(other, i + gradient, iteration);
          }
          ASSERT_EQ(static_cast<const float*>(view.data)[i], unit * sum)
              << "rank " << rank << " gradient " << gradient << " element " << i;
        }
      }
    }
  }

  GradientSetState& set(int rank) { return *sets[static_cast<std::size_t>(rank)]; }
  HostStream& stream(int rank) { return as_host(*streams[static_cast<std::size_t>(rank)]); }

  EngineJob job;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::shared_ptr<GradientSetState>> sets;
  float unit = 1;  ///< A factor of all elements.

 private:
  std::vector<std::size_t> counts_;
  std::vector<DeviceMemory> memory_;
  std::mt19937_64 random_;
};

const std::vector<std::size_t> kCounts = {5, 64, 1, 100, 333, 17};

struct DeviceCase {
  std::vector<int> nodes;
  std::string algorithm;
};

class DeviceGradients : public testing::TestWithParam<DeviceCase> {};

// Buckets have one or many gradients and small sizes, in the arena and packed. The host's
// collectives also report if ranks launch them in different orders.
TEST_P(DeviceGradients, AverageForAnyInterleaving) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const bool in_arena = seed % 2 == 0;
    SCOPED_TRACE("seed " + std::to_string(seed));
    DeviceTraining training(GetParam().nodes,
                            {.algorithm = GetParam().algorithm,
                             .device_fusion_bytes = seed % 3 == 0 ? 0U : 1000U << seed % 3,
                             .device_chunk_bytes = 1024},
                            seed, kCounts);
    training.register_all(in_arena);
    for (int iteration = 0; iteration < 3; ++iteration) {
      training.mark_all(iteration);
      training.job.run_until_idle();
      for (const auto& set : training.sets) {
        ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
      }
      training.expect_averages(iteration);
    }
  }
}

// Zeros are written after the program's streams have used the former values.
TEST_P(DeviceGradients, CountAsZerosWhereTheyAreAbsent) {
  const auto is_absent = [](int rank, std::size_t gradient, int iteration) {
    return gradient == 1 || (static_cast<std::size_t>(rank + iteration) + gradient) % 2 == 0;
  };
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DeviceTraining training(
        GetParam().nodes, {.algorithm = GetParam().algorithm, .device_fusion_bytes = 1000U * seed},
        seed, kCounts);
    training.register_all(seed == 0);
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (int rank = 0; rank < training.job.world_size(); ++rank) {
        for (std::size_t gradient = 0; gradient < kCounts.size(); ++gradient) {
          // An absent gradient holds values that must not count.
          training.write(rank, gradient, iteration);
          const NativeStream stream{&training.stream(rank)};
          if (is_absent(rank, gradient, iteration)) {
            test::mark_absent(training.job.engine(rank), training.set(rank), gradient, stream);
          } else {
            test::mark(training.job.engine(rank), training.set(rank), gradient, stream);
          }
        }
      }
      training.job.run_until_idle();
      for (const auto& set : training.sets) {
        ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
      }
      training.expect_averages(iteration, [&](int rank, std::size_t gradient) {
        return !is_absent(rank, gradient, iteration);
      });
    }
  }
}

// The sum of a node reaches 78848, more than float16 holds; the average 28160.
TEST(DeviceEngine, AveragesInFloat16StayInItsRange) {
  for (const bool in_arena : {false, true}) {
    DeviceTraining training({2, 2}, {.algorithm = "hierarchical:native,direct"}, 1, kCounts);
    training.unit = 256;
    training.register_all(in_arena, {.wire_dtype = DType::kFloat16});
    training.mark_all(0);
    training.job.run_until_idle();
    for (const auto& set : training.sets) {
      ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
    }
    training.expect_averages(0);
  }
}

std::vector<DeviceCase> all_cases() {
  std::vector<DeviceCase> cases;
  for (const std::vector<int>& nodes : std::initializer_list<std::vector<int>>{
           {1}, {2}, {4}, {1, 1}, {2, 2}, {3, 3}, {2, 1, 1}, {1, 3}}) {
    for (const char* algorithm : {"auto", "native"}) cases.push_back({nodes, algorithm});
    if (nodes.size() == 1) continue;
    for (const char* cross : {"ring", "direct", "halving_doubling"}) {
      cases.push_back({nodes, std::string("hierarchical:native,") + cross});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceGradients, testing::ValuesIn(all_cases()));

// `wait` on a stream returns while copies are in flight. The stream's later work sees the result,
// and the next iteration may be marked immediately.
TEST(DeviceEngine, AStreamWaitsInsteadOfTheProcessor) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DeviceTraining training({2, 2},
                            {.algorithm = "hierarchical:native,ring",
                             .device_fusion_bytes = 1000,
                             .device_chunk_bytes = 1024},
                            seed, kCounts);
    training.register_all(true);
    std::vector<float> seen(4);
    for (int iteration = 0; iteration < 4; ++iteration) {
      training.mark_all(iteration);
      for (int rank = 0; rank < 4; ++rank) {
        GradientSetState& set = training.set(rank);
        bool is_over = false;
        training.job.run_until([&] {
          is_over = is_over || set.iterations().all_enqueued();
          return is_over;
        });
        ASSERT_TRUE(set.iterations().wait(std::chrono::milliseconds(1), {&training.stream(rank)}));
        training.stream(rank).enqueue([&seen, rank, view = set.view(0)] {
          seen[static_cast<std::size_t>(rank)] = static_cast<const float*>(view.data)[0];
          return true;
        });
      }
      if (iteration % 2 == 0) continue;
      for (int rank = 0; rank < 4; ++rank) {
        const auto end = training.job.device(rank).make_event();
        training.stream(rank).record(*end);
        training.job.run_until([&] { return end->done(); });
        float sum = 0;
        for (int other = 0; other < 4; ++other) sum += element(other, 0, iteration);
        EXPECT_EQ(seen[static_cast<std::size_t>(rank)], sum);
      }
    }
    training.job.run_until_idle();
  }
}

// The end of an iteration for which a stream waits must not end the next, which has already begun.
TEST(DeviceEngine, AGradientIsWaitedForInItsIteration) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DeviceTraining training({1, 1}, {.device_fusion_bytes = 1000, .device_chunk_bytes = 1024}, seed,
                            kCounts);
    training.register_all(true);
    training.mark_all(0);
    for (int rank = 0; rank < 2; ++rank) {
      GradientIterations& iterations = training.set(rank).iterations();
      training.job.run_until([&] { return iterations.all_enqueued(); });
      ASSERT_TRUE(iterations.wait(std::chrono::milliseconds(1), {&training.stream(rank)}));
    }
    training.mark_all(1);
    GradientSetState& set = training.set(0);
    while (!set.wait_for(0, std::chrono::milliseconds(1))) training.job.poll(50);
    EXPECT_EQ(static_cast<const float*>(set.view(0).data)[0], element(0, 0, 1) + element(1, 0, 1));
    training.job.run_until_idle();
  }
}

// The next iteration, which is marked while the set fails, does not begin.
TEST(DeviceEngine, AFailedSetBeginsNoIteration) {
  DeviceTraining training({2}, {.algorithm = "native"}, 1, {5});
  training.register_all(true);
  bool gate = false;
  for (int rank = 0; rank < 2; ++rank) {
    training.stream(rank).enqueue([&gate] { return gate; });
  }
  training.mark_all(0);
  for (int rank = 0; rank < 2; ++rank) {
    GradientIterations& iterations = training.set(rank).iterations();
    training.job.run_until([&] { return iterations.all_enqueued(); });
    ASSERT_TRUE(iterations.wait(std::chrono::milliseconds(1), {&training.stream(rank)}));
  }
  training.mark_all(1);
  training.job.poll(200);
  for (const auto& set : training.sets) {
    set->fail({.code = ErrorCode::kPeerLost, .what = "rank 2 went away"});
  }
  gate = true;
  training.job.run_until_idle();
  for (int rank = 0; rank < 2; ++rank) {
    const auto written = training.job.device(rank).make_event();
    training.stream(rank).record(*written);
    training.job.run_until([&] { return written->done(); });
    EXPECT_EQ(static_cast<const float*>(training.set(rank).view(0).data)[0],
              2 * element(rank, 0, 1))
        << "rank " << rank << " has what it wrote itself";
  }
}

// `wait` on a stream returns while the device still writes the averages.
TEST(DeviceEngine, AnAbsentGradientCountsAsZeroAfterAWaitOnAStream) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DeviceTraining training({2}, {}, seed, {100});
    training.register_all(false);
    training.mark_all(0);
    training.job.run_until([&] {
      return std::ranges::all_of(training.sets,
                                 [](const auto& set) { return set->iterations().all_enqueued(); });
    });
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(training.set(rank).wait(std::chrono::milliseconds(1),
                                          NativeStream{&training.stream(rank)}));
    }
    test::mark_absent(training.job.engine(0), training.set(0), 0);
    training.mark(1, 0, 1);
    training.job.run_until_idle();
    for (const auto& set : training.sets) {
      ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
    }
    training.expect_averages(1, [](int rank, std::size_t) { return rank == 1; });
  }
}

TEST(DeviceEngine, ARefusedSecondMarkDoesNotWaitForItsStream) {
  DeviceTraining training({2}, {}, 1, {100, 7});
  training.register_all(false);
  training.mark_all(0);
  const auto other = training.job.device(0).make_stream();
  as_host(*other).enqueue([] { return false; });
  EXPECT_THROW(training.set(0).iterations().mark(0, NativeStream{other.get()}), UsageError);
  training.job.run_until([&] { return training.set(0).iterations().is_over(); });
  ASSERT_TRUE(training.set(0).wait(std::chrono::milliseconds(1)));
}

TEST(DeviceEngine, BitsDoNotDependOnTiming) {
  for (const char* algorithm : {"native", "hierarchical:native,direct"}) {
    std::vector<std::byte> reference;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(std::string(algorithm) + " seed " + std::to_string(seed));
      DeviceTraining training({2, 2}, {.algorithm = algorithm, .device_chunk_bytes = 1024}, seed,
                              {400, 33});
      training.register_all(true, {.wire_dtype = DType::kBFloat16});
      for (int rank = 0; rank < 4; ++rank) {
        std::mt19937 values(static_cast<unsigned>(rank));
        for (std::size_t gradient = 0; gradient < 2; ++gradient) {
          const BufferView view = training.set(rank).view(gradient);
          for (std::size_t i = 0; i < view.count; ++i) {
            static_cast<float*>(view.data)[i] =
                std::uniform_real_distribution<float>(-1, 1)(values);
          }
          test::mark(training.job.engine(rank), training.set(rank), gradient);
        }
      }
      training.job.run_until_idle();
      for (int rank = 0; rank < 4; ++rank) {
        const BufferView view = training.set(rank).view(0);
        const auto bytes = view.as_bytes();
        if (reference.empty()) reference.assign(bytes.begin(), bytes.end());
        EXPECT_EQ(std::memcmp(reference.data(), bytes.data(), bytes.size()), 0) << "rank " << rank;
      }
    }
  }
}

// A step allocates no device memory, and on one node no heap memory. (Between nodes, the
// coordinator's frames and the in-process network's messages allocate some.)
TEST(DeviceEngine, ASteadyStepAllocatesNothing) {
  for (const std::vector<int>& nodes : std::initializer_list<std::vector<int>>{{4}, {2, 2}}) {
    DeviceTraining training(nodes,
                            {.algorithm = nodes.size() > 1 ? "hierarchical:native,ring" : "native",
                             .device_fusion_bytes = 1000,
                             .device_chunk_bytes = 1024},
                            11, kCounts);
    training.register_all(true);
    const auto counts = [&](int rank) { return training.job.device(rank).allocation_counts(); };
    std::vector<AllocationCounts> before;
    for (int rank = 0; rank < 4; ++rank) before.push_back(counts(rank));
    for (int iteration = 0; iteration < 60; ++iteration) {
      training.mark_all(iteration);
      const test::AllocationCounter heap;
      training.job.run_until_idle();
      if (nodes.size() == 1 && iteration >= 40) {  // queues have their final size
        const std::size_t calls = heap.calls();
        const test::AllocationCounter idle;
        training.job.run_until_idle();
        EXPECT_EQ(calls, idle.calls()) << "beyond those of the test, iteration " << iteration;
      }
      for (int rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(training.set(rank).iterations().wait(std::chrono::milliseconds(1)));
        const AllocationCounts& first = before[static_cast<std::size_t>(rank)];
        EXPECT_EQ(counts(rank).allocations, first.allocations);
        EXPECT_EQ(counts(rank).events, first.events);
        EXPECT_EQ(counts(rank).streams, first.streams);
      }
    }
  }
}

TEST(DeviceEngine, DeviceMemoryWithoutADeviceIsAnErrorThatNamesTheOption) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), {}, 1);
  for (const auto& set :
       job.register_sets({{.name = "g", .shape = {8}, .memory = MemoryKind::kDevice}})) {
    try {
      set->registration().wait(std::chrono::milliseconds(1));
      FAIL() << "no error";
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kUsage);
      EXPECT_THAT(e.what(), testing::HasSubstr("KOLO_DEVICE"));
    }
  }
}

TEST(DeviceEngine, EndsInOrder) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    DeviceTraining training({2, 1}, {}, seed, {10, 20});
    training.register_all(true);
    training.mark_all(0);
    training.job.run_until_idle();
    std::vector<std::shared_ptr<Operation>> closes;
    for (int rank = 0; rank < 3; ++rank) {
      closes.push_back(training.job.submit(rank, {.kind = OperationKind::kClose}));
    }
    training.job.finish(closes);
    training.job.run_until_ended();
    for (const auto& close : closes) EXPECT_EQ(error_of(*close), "");
  }
}

}  // namespace
}  // namespace kolo
