// Tests tensors in memory that the runtime allocates.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

/// `count` equal floats in memory of the runtime.
class SharedFloats {
 public:
  SharedFloats(Runtime& runtime, std::size_t count)
      : memory_(runtime.allocate(count * sizeof(float))), count_(count) {}

  float* data() const { return reinterpret_cast<float*>(memory_.get()); }
  BufferView view() const { return {data(), count_, DType::kFloat32}; }
  void fill(float value) { std::fill_n(data(), count_, value); }
  bool is_all(float value) const {
    return std::all_of(data(), data() + count_, [&](float each) { return each == value; });
  }

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::size_t count_;
};

class RuntimeMemory : public testing::TestWithParam<int> {};

// Every contribution is overwritten as soon as its call returns.
TEST_P(RuntimeMemory, IsReadByPeersUntilTheCallReturns) {
  Options options = test_options();
  options.arena_bytes = std::size_t{32} << 20;
  options.group_arena_bytes = std::size_t{64} << 20;
  RuntimeJob(GetParam(), options).run([](Runtime& runtime) {
    const auto ranks = static_cast<std::size_t>(runtime.world_size());
    const int last = runtime.world_size() - 1;
    const auto mine = static_cast<float>(runtime.rank() + 1);
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    for (const std::size_t count : {std::size_t{10}, std::size_t{40'000}, std::size_t{400'000}}) {
      const std::string size = std::to_string(count);
      SharedFloats part(runtime, count), result(runtime, count);
      SharedFloats whole(runtime, count * ranks), parts(runtime, count * ranks);
      const auto rank_of = [&](std::size_t i) { return static_cast<float>(i / count + 1); };
      for (int use = 0; use < 2; ++use) {
        part.fill(mine);
        runtime.all_gather("all_gather " + size, {part.view(), whole.view()}).wait();
        part.fill(-1);
        for (std::size_t i = 0; i < count * ranks; ++i) {
          require(whole.data()[i] == rank_of(i), "all_gather");
        }
        runtime.all_to_all("all_to_all " + size, {whole.view(), parts.view()}).wait();
        whole.fill(-1);
        require(parts.is_all(mine), "all_to_all");
        parts.fill(mine);
        runtime.reduce_scatter("reduce_scatter " + size, {parts.view(), result.view()}).wait();
        parts.fill(-1);
        require(result.is_all(sum), "reduce_scatter");
        part.fill(mine);
        runtime.reduce("reduce " + size, {part.view(), result.view()}, last).wait();
        part.fill(-1);
        require(runtime.rank() != last || result.is_all(sum), "reduce");
        parts.fill(3);
        runtime.scatter("scatter " + size, {parts.view(), result.view()}, last).wait();
        parts.fill(-1);
        require(result.is_all(3), "scatter");
        part.fill(mine);
        runtime.gather("gather " + size, {part.view(), whole.view()}, last).wait();
        part.fill(-1);
        for (std::size_t i = 0; i < count * ranks && runtime.rank() == last; ++i) {
          require(whole.data()[i] == rank_of(i), "gather");
        }
        part.fill(runtime.rank() == last ? 5 : 0);
        runtime.broadcast("broadcast " + size, part.view(), last).wait();
        require(part.is_all(5), "broadcast");
      }
    }
  });
}

TEST_P(RuntimeMemory, ServesGroups) {
  RuntimeJob(GetParam(), test_options()).run([](Runtime& runtime) {
    Group group = runtime.node_group({.arena_bytes = std::size_t{4} << 20});
    SharedFloats part(runtime, 10'000);
    SharedFloats whole(runtime, 10'000 * static_cast<std::size_t>(group.size()));
    for (int use = 0; use < 3; ++use) {
      part.fill(static_cast<float>(group.rank() + use));
      group.all_gather("x", {part.view(), whole.view()}).wait();
      part.fill(-1);
      for (int rank = 0; rank < group.size(); ++rank) {
        require(whole.data()[10'000 * rank] == static_cast<float>(rank + use), "all_gather");
      }
    }
    runtime.barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RuntimeMemory, testing::Values(1, 2, 3));

TEST(RuntimeMemoryLimits, AreThoseOfTheOption) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    std::string error = error_of([&] { runtime.allocate(std::size_t{17} << 20); });
    require(error.find("group_arena_bytes") != std::string::npos, error);
    // Released memory is reused, and each rank may reuse it in another order.
    for (int i = 0; i < 10 + runtime.rank(); ++i) {
      const auto memory = runtime.allocate(std::size_t{10} << 20);
      memory[0] = memory[(std::size_t{10} << 20) - 1] = std::byte{1};
    }
    const auto none = runtime.allocate(0);
    all_reduce_works(runtime, "x");
  });
}

TEST(RuntimeMemoryThreads, AllocateWhileOthersCommunicate) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    std::thread allocates([&] {
      for (int i = 0; i < 200; ++i)
        SharedFloats(runtime, 1000 + static_cast<std::size_t>(i)).fill(1);
    });
    for (int i = 0; i < 50; ++i) all_reduce_works(runtime, "x " + std::to_string(i));
    allocates.join();
  });
}

}  // namespace
}  // namespace kolo::test
