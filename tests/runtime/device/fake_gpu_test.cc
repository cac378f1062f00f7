// Tests engines and runtimes on fake GPUs: real code down to the calls of CUDA and NCCL. A program
// may capture a graph while Kolo works, aborts of several groups do not wait for each other, and
// memory of another device is refused at every call.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/device/cuda_device.h"
#include "comm/native/nccl_device_communicator.h"
#include "runtime/calls/operation_calls.h"
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/device/fake_cuda.h"
#include "tests/support/engine_job.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/group_job.h"
#include "tests/support/runtime_job.h"

namespace kolo::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr std::size_t kCount = 100;

void wait_until_called(const std::string& function, std::ptrdiff_t times) {
  while (fake_nccl().called(function) < times) std::this_thread::yield();
}

/// A job with three groups. Rank 0 is in all of them.
class FakeGpuJob {
 public:
  FakeGpuJob() {
    groups.push_back(job.create_all({0, 1, 2}, "a"));
    groups.push_back(job.create_all({1, 0}, "b"));
    groups.push_back(job.create_all({0, 2}, "c"));
  }

  /// Begins an all-reduce in the job and in each group, and an iteration of a gradient set.
  void begin() {
    for (int rank = 0; rank < kRanks; ++rank) all_reduce(job.engine(rank), rank);
    for (const auto& members : groups) {
      for (const auto& member : members) {
        all_reduce(member->engine(), member->ranks()[static_cast<std::size_t>(member->rank())]);
      }
    }
    for (const auto& member : groups.front()) {
      std::vector<GradientSpec> gradients(2, {.name = "v", .memory = MemoryKind::kDevice});
      gradients[1].name = "w";
      for (GradientSpec& each : gradients) {  // in memory of the program, so they are packed
        each.shape = {kCount};
        each.dtype = DType::kFloat32;
        each.data = allocate(member->ranks()[static_cast<std::size_t>(member->rank())]);
      }
      sets.push_back(std::make_shared<GradientSetState>("model", gradients, GradientOptions{}));
      member->engine().submit(sets.back());
    }
    job.run_until([&] {
      return std::ranges::all_of(sets, [](const auto& set) { return set->registration().done(); });
    });
    for (std::size_t i = 0; i < sets.size(); ++i) {
      for (const std::size_t gradient : {0U, 1U}) {
        mark(groups.front()[i]->engine(), *sets[i], gradient, NativeStream{});
      }
    }
  }

  /// Runs until all collectives are launched.
  void run_until_launched() {
    job.run_until([] { return fake_nccl().called("all_reduce") == kLaunches; });
  }

  static constexpr std::ptrdiff_t kCommunicators = 3 + 3 + 2 + 2;
  static constexpr std::ptrdiff_t kLaunches = kCommunicators + 3;  // and gradients

  GroupJob job{ProcessGrid::with_node_sizes({kRanks}),
               5,
               std::size_t{4} << 20,
               {.arena_bytes = GroupJob::kJobArena},
               [](int) { return std::make_unique<CudaDevice>(0); },
               nullptr,
               [](Device& device) {
                 return std::make_unique<NcclConnector>(dynamic_cast<const CudaDevice&>(device),
                                                        milliseconds(60'000));
               }};
  std::vector<std::vector<std::shared_ptr<GroupEngine>>> groups;
  std::vector<DeviceMemory> memory;
  std::vector<std::shared_ptr<Operation>> operations;
  std::vector<std::shared_ptr<GradientSetState>> sets;

 private:
  void* allocate(int rank) {
    memory.push_back(job.device(rank).allocate(kCount * sizeof(float), MemoryKind::kDevice));
    return memory.back().data();
  }

  void all_reduce(Engine& engine, int rank) {
    const BufferView buffer{allocate(rank), kCount, DType::kFloat32, MemoryKind::kDevice};
    OperationPool pool;
    operations.push_back(OperationCalls(pool, 0, 1).make(OperationKind::kAllReduce, "x", buffer));
    engine.submit(operations.back());
  }
};

TEST(FakeGpu, AProgramMayCaptureAGraphWhileABucketIsInFlight) {
  const FakeNcclScope scope;
  FakeGpuJob all;
  fake_cuda().captures = true;
  all.begin();
  all.job.finish(all.operations);
  for (const auto& operation : all.operations) EXPECT_EQ(error_of(*operation), "");
  all.run_until_launched();
  all.job.run_until([polls = 0]() mutable { return ++polls == 5000; });  // until it is idle
  for (const auto& set : all.sets) EXPECT_TRUE(set->iterations().wait(milliseconds(1)));
  EXPECT_GT(fake_cuda().launches, 0);
  EXPECT_EQ(fake_cuda().lazy_loads, 0);
  EXPECT_FALSE(fake_cuda().has_lost_capture);
}

TEST(FakeGpu, AGroupHasThreeStreams) {
  const FakeNcclScope scope;
  FakeGpuJob all;
  all.begin();
  all.job.finish(all.operations);
  EXPECT_EQ(all.job.device(0).allocation_counts().streams, 4 * 3U) << "the job's and three groups'";
}

TEST(FakeGpu, AllAbortsBeginBeforeOneIsOver) {
  const FakeNcclScope scope;
  FakeGpuJob all;
  all.begin();
  fake_cuda().spins = true;
  all.run_until_launched();
  fake_nccl().close_gate();
  all.job.engine(2).abort({.code = ErrorCode::kInternal, .rank = 2, .what = "broke"});
  all.job.run_until([&] { return all.job.engine(0).failure().has_value(); });
  wait_until_called("abort", 4);  // those of rank 0 at least, as no abort has ended
  EXPECT_EQ(fake_nccl().called("aborted"), 0);
  all.job.run_until([] { return fake_nccl().called("abort") == FakeGpuJob::kCommunicators; });
  for (const auto& operation : all.operations) {
    EXPECT_FALSE(operation->ticket->done()) << "its memory is still in use";
  }
  fake_cuda().spins = false;
  fake_nccl().open_gate();
  all.job.finish(all.operations, milliseconds(1));
  for (const auto& operation : all.operations) {
    EXPECT_THAT(error_of(*operation), HasSubstr("rank 2: broke"));
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(*all.job.device(rank).stuck());
}

TEST(FakeGpu, AnAbortThatNeverReturnsKeepsNobodyAndFreesNothing) {
  const FakeNcclScope scope;
  {
    FakeGpuJob all;
    all.begin();
    fake_cuda().spins = true;
    all.run_until_launched();
    fake_nccl().hangs = 0;
    fake_nccl().close_gate();
    all.job.engine(2).abort({.code = ErrorCode::kInternal, .rank = 2, .what = "broke"});
    all.job.run_until(
        [] { return fake_nccl().called("aborted") == FakeGpuJob::kCommunicators - 1; });
    const TimePoint failed = all.job.clock().now();
    all.job.run_until(
        [&] {
          return std::ranges::all_of(std::vector{0, 1, 2},
                                     [&](int rank) { return all.job.engines(rank).ended(); });
        },
        milliseconds(50));
    EXPECT_LE(all.job.clock().now() - failed, std::chrono::seconds(6));
    for (const auto& operation : all.operations) {
      EXPECT_THAT(error_of(*operation), HasSubstr("rank 2: broke"));
    }
    const auto stuck = std::ranges::count_if(
        std::vector{0, 1, 2}, [&](int rank) { return all.job.device(rank).stuck()->load(); });
    EXPECT_EQ(stuck, 1) << "the rank whose abort does not return";
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!*all.job.device(rank).stuck()) all.job.device(rank).note_stuck();
    }
    fake_cuda().waits = 0;
  }
  EXPECT_EQ(fake_cuda().waits, 0) << "a destructor waited for a kernel that spins";
  EXPECT_EQ(fake_nccl().called("cudaFree") + fake_nccl().called("ncclMemFree"), 0);
  fake_nccl().open_gate();
  wait_until_called("aborted", FakeGpuJob::kCommunicators);
}

/// Returns the text of the UsageError that `call` throws.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FakeGpu, MemoryOfAnotherDeviceIsRefusedAtEveryCall) {
  const FakeNcclScope scope;
  CudaDevice device(0), other(1);
  const DeviceMemory own = device.allocate(64, MemoryKind::kDevice);
  const DeviceMemory foreign = other.allocate(64, MemoryKind::kDevice);
  std::vector<float> host(16);
  const auto at = [](const void* data) {
    return BufferView{const_cast<void*>(data), 16, DType::kFloat32, MemoryKind::kDevice};
  };
  const auto is_named = [](const std::string& subject) {
    return AllOf(HasSubstr(subject), HasSubstr("memory of cuda:1, where that of cuda:0 (Fake GPU"));
  };
  RuntimeJob(1, {.device = "cuda"}).run([&](Runtime& job) {
    const BufferView good = at(own.data()), bad = at(foreign.data());
    EXPECT_THAT(refusal([&] { (void)job.all_reduce("x", bad); }),
                is_named("'x': the buffer is in"));
    EXPECT_THAT(refusal([&] {
                  (void)job.all_gather("x", {bad, good});
                }),
                is_named("the input is in"));
    EXPECT_THAT(refusal([&] { (void)job.broadcast("x", {good, bad}, 0); }), is_named("result"));
    const std::vector<Tensor> list{good, bad};
    EXPECT_THAT(refusal([&] { (void)job.all_reduce("x", list); }), is_named("the buffer is in"));
    EXPECT_THAT(refusal([&] { (void)job.all_reduce("x", list); }),
                HasSubstr("tensor 1 of the list"));
    EXPECT_THAT(refusal([&] { (void)job.send(bad, 0); }), is_named("send: buffer 0 is in"));
    EXPECT_THAT(refusal([&] { (void)job.recv(bad, 0); }), is_named("recv: buffer 0 is in"));
    const std::vector<std::int64_t> indices{0};
    const TableRows rows{
        .table = {.height = 4, .width = 4, .dtype = DType::kFloat32, .memory = MemoryKind::kDevice},
        .indices = indices,
        .rows = foreign.data()};
    EXPECT_THAT(refusal([&] { (void)job.sparse_all_reduce("x", rows); }),
                is_named("'x': the rows are in"));
    const auto set_at = [&](void* data) {
      return std::vector<GradientSpec>{{.name = "w",
                                        .shape = {16},
                                        .dtype = DType::kFloat32,
                                        .data = data,
                                        .memory = MemoryKind::kDevice}};
    };
    EXPECT_THAT(refusal([&] { job.register_gradients("model", set_at(foreign.data())); }),
                is_named("gradient 'w' of set 'model' is in"));
    EXPECT_THAT(refusal([&] { (void)job.all_reduce("x", at(host.data())); }),
                HasSubstr("memory of no device"));
    EXPECT_NO_THROW(job.all_reduce("x", good).wait());
    EXPECT_NO_THROW(job.register_gradients("model", set_at(own.data())));
  });
}

TEST(FakeGpu, AJobOfOneNodeHasOneCommunicator) {
  const FakeNcclScope scope;
  RuntimeJob(1, {.device = "cuda"}).run([](Runtime&) {});
  EXPECT_EQ(fake_nccl().called("init"), 1);
  EXPECT_EQ(fake_nccl().called("split"), 0);
  EXPECT_EQ(fake_nccl().called("destroy"), 1);
}

}  // namespace
}  // namespace kolo::test
