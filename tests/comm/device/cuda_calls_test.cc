// Tests with a fake CUDA which calls Kolo makes, and when: none that a capture of the user's
// program forbids, none that waits for work that may not end, and none about memory of another
// device.

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/device/cuda_device.h"
#include "comm/device/cuda_stream.h"
#include "comm/native/device_factory.h"
#include "comm/native/nccl_device_communicator.h"
#include "tests/support/device/fake_cuda.h"
#include "tests/support/fake_nccl.h"

namespace kolo::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kAmple{30'000};  // a deadline that should not pass

class CudaCalls : public testing::Test {
 protected:
  static std::unique_ptr<NcclDeviceCommunicator> connect(const CudaDevice& device) {
    const std::vector<std::string> alone{NcclDeviceCommunicator::introduce(0)};
    return NcclDeviceCommunicator::connect(alone, 0, device, kAmple);
  }

  /// Uses everything that a device and a communicator offer.
  static void use(CudaDevice& device) {
    const auto stream = device.make_stream();
    const auto event = device.make_event();
    const DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
    const DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
    const DeviceMemory pooled = device.allocate_on(*device.make_stream(), 64);
    stream->copy({memory.data(), 64, DType::kUInt8, MemoryKind::kDevice},
                 {pinned.data(), 64, DType::kUInt8, MemoryKind::kPinned});
    const void* const source = memory.data();
    device.kernels().reduce(*stream, DType::kFloat32, ReduceOp::kSum, memory.data(), {&source, 1},
                            16, 1.0);
    device.record({stream->native()}, *event);
    device.wait({stream->native()}, *event);
    stream->record(*event);
    stream->wait(*event);
    EXPECT_TRUE(event->done());
    EXPECT_EQ(device.foreign_memory(memory.data()), "");
    for (const bool aborts : {false, true}) {
      const auto group = connect(device);
      const DeviceMemory registered = group->allocate(kFromNccl);
      group->all_reduce(*stream, source, memory.data(), 16, DType::kFloat32, ReduceOp::kSum);
      EXPECT_FALSE(group->async_error());
      if (aborts) {
        EXPECT_TRUE(group->abort(kAmple));
      } else {
        while (group->finalize() != CommunicatorState::kFinalized) {
        }
      }
    }
  }

  static cudaStreamCaptureMode mode_of_thread() {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStreamCaptureMode same = mode;
    cudaThreadExchangeStreamCaptureMode(&same);
    return mode;
  }

  const FakeNcclScope scope_;
};

TEST_F(CudaCalls, TheFakeLosesACaptureByACallOfAnotherThread) {
  CudaDevice device(0);
  const DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
  fake_cuda().captures = true;
  std::thread([] { EXPECT_NE(cudaEventQuery(nullptr), cudaSuccess); }).join();
  EXPECT_TRUE(fake_cuda().has_lost_capture);
}

TEST_F(CudaCalls, AGraphMayBeCapturedMeanwhile) {
  CudaDevice device(0);
  fake_cuda().captures = true;
  use(device);
  EXPECT_EQ(mode_of_thread(), cudaStreamCaptureModeGlobal);
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    cudaThreadExchangeStreamCaptureMode(&mode);
    use(device);
    EXPECT_EQ(mode_of_thread(), cudaStreamCaptureModeThreadLocal);
  }).join();
  CudaDevice(1);
  EXPECT_FALSE(fake_cuda().has_lost_capture);
}

TEST_F(CudaCalls, MemoryThatIsNotOfTheDeviceIsNamed) {
  CudaDevice device(0), other(1);
  const DeviceMemory own = device.allocate(64, MemoryKind::kDevice);
  const DeviceMemory foreign = other.allocate(64, MemoryKind::kDevice);
  const DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
  void* const managed = fake_cuda().allocate(64, cudaMemoryTypeManaged);
  const std::vector<float> ordinary(16);
  EXPECT_EQ(device.problem_with(own.data(), 64), "");
  EXPECT_EQ(device.problem_with(own.data() + 63, 1), "");
  EXPECT_EQ(device.problem_with(managed, 64), "");
  EXPECT_EQ(device.problem_with(foreign.data(), 64),
            "memory of cuda:1, where that of cuda:0 (Fake GPU, 0000:00:00.0) is expected");
  EXPECT_EQ(device.problem_with(foreign.data(), 0), "");
  EXPECT_THAT(device.problem_with(pinned.data(), 64), HasSubstr("pinned host memory"));
  EXPECT_THAT(device.problem_with(ordinary.data(), 64), HasSubstr("memory of no device"));
  EXPECT_EQ(other.problem_with(foreign.data(), 64), "");
  fake_cuda().free(managed);
}

TEST_F(CudaCalls, AnAddressIsAskedAboutOnce) {
  CudaDevice device(0);
  const DeviceMemory memory = device.allocate(1 << 20, MemoryKind::kDevice);
  for (int time = 0; time < 3; ++time) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(device.problem_with(memory.data() + 4096 * i, 1), "");
  }
  EXPECT_EQ(fake_nccl().called("cudaPointerGetAttributes"), 4);
}

TEST_F(CudaCalls, MemoryFromAPoolWaitsForNothing) {
  CudaDevice device(0);
  auto stream = device.make_stream();
  fake_cuda().spins = true;
  DeviceMemory memory = device.allocate_on(*stream, 100);
  EXPECT_EQ(memory.bytes(), 100U);
  EXPECT_EQ(device.foreign_memory(memory.data()), "");
  stream.reset();  // The memory keeps the stream.
  memory = {};
  EXPECT_EQ(fake_cuda().waits, 0);
  EXPECT_THAT(fake_nccl().calls(),
              testing::ElementsAre("cudaMallocAsync", "cudaPointerGetAttributes", "cudaFreeAsync"));
}

TEST_F(CudaCalls, FreeingDoesNotWaitForTheDevice) {
  CudaDevice device(0);
  DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
  DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
  auto group = connect(device);
  DeviceMemory registered = group->allocate(kFromNccl);
  fake_nccl().allocates = false;
  DeviceMemory ordinary = group->allocate(kFromNccl);
  fake_cuda().spins = true;
  for (DeviceMemory* each : {&memory, &pinned, &registered, &ordinary}) *each = {};
  testing::internal::CaptureStderr();
  group.reset();  // The end of a group does not wait, either.
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nothing was given up";
  EXPECT_EQ(fake_cuda().waits, 0) << "another thread waits";
  EXPECT_EQ(fake_cuda().in_use(), 4U);
  fake_cuda().spins = false;
  while (fake_cuda().in_use() > 0) std::this_thread::yield();
  EXPECT_EQ(fake_nccl().called("cudaFree"), 3) << "one to wait for the device";
  EXPECT_EQ(fake_nccl().called("cudaFreeHost"), 1);
  EXPECT_EQ(fake_nccl().called("ncclMemFree"), 1);
}

// The call that frees it does not wait, and kernels behind an aborted collective may still run.
TEST_F(CudaCalls, MemoryOfNcclIsFreedAfterAllWorkOfTheDevice) {
  CudaDevice device(0);
  const auto group = connect(device);
  DeviceMemory memory = group->allocate(kFromNccl);
  fake_cuda().spins = true;
  memory = {};
  while (fake_nccl().called("cudaMalloc") + fake_nccl().called("ncclMemFree") == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(fake_nccl().called("ncclMemFree"), 0);
  fake_cuda().spins = false;
  while (fake_cuda().in_use() > 0) std::this_thread::yield();
  EXPECT_EQ(fake_nccl().called("ncclMemFree"), 1);
}

TEST_F(CudaCalls, TheOrderlyEndOfAGroupDoesNotWaitForTheDevice) {
  const CudaDevice device(0);
  const auto group = connect(device);
  fake_cuda().spins = true;
  EXPECT_EQ(group->finalize(), CommunicatorState::kFinalizing);
  while (fake_nccl().called("destroy") == 0) std::this_thread::yield();
  EXPECT_EQ(group->finalize(), CommunicatorState::kFinalizing);
  EXPECT_FALSE(group->async_error());
  EXPECT_EQ(fake_cuda().waits, 0) << "another thread waits";
  fake_cuda().spins = false;
  while (group->finalize() == CommunicatorState::kFinalizing) std::this_thread::yield();
  EXPECT_EQ(group->finalize(), CommunicatorState::kFinalized);
}

TEST_F(CudaCalls, AStreamOfTheProgramIsAskedOnTheDevice) {
  CudaDevice device(1);
  const auto event = device.make_event();
  device.record({nullptr}, *event);
  EXPECT_EQ(fake_cuda().asked_device, 1);
  fake_cuda().asked_device = -1;
  device.wait({nullptr}, *event);
  EXPECT_EQ(fake_cuda().asked_device, 1);
}

// A buffer that grows is freed and allocated again; on a full GPU it needs its own old memory.
TEST_F(CudaCalls, MemoryThatIsBeingFreedIsThereForTheNextAllocation) {
  CudaDevice device(0);
  const auto group = connect(device);
  const std::vector<std::pair<std::string, std::function<DeviceMemory()>>> allocations = {
      {"cudaMalloc", [&] { return device.allocate(64, MemoryKind::kDevice); }},
      {"cudaHostAlloc", [&] { return device.allocate(64, MemoryKind::kPinned); }},
      {"cudaMalloc", [&] { return group->allocate(kFromNccl); }}};
  for (const auto& [call, allocate] : allocations) {
    DeviceMemory old = device.allocate(64, MemoryKind::kDevice);
    fake_cuda().room = 1;
    EXPECT_THROW(allocate(), KoloError) << "nothing is being freed";
    fake_cuda().spins = true;
    old = {};
    const auto refused = fake_nccl().called(call) + 1;
    std::thread device_ends([&, &name = call] {
      while (fake_nccl().called(name) < refused) std::this_thread::yield();
      fake_cuda().spins = false;
    });
    EXPECT_NO_THROW(allocate()) << call;
    device_ends.join();
    while (fake_cuda().in_use() > 0) std::this_thread::yield();
    fake_cuda().room = SIZE_MAX;
  }
  EXPECT_EQ(fake_nccl().called("ncclMemFree"), 1) << "the second attempt asks NCCL again";
}

TEST_F(CudaCalls, ADeviceEndsWhenAllItsMemoryIsFreed) {
  {
    CudaDevice device(0);
    for (int i = 0; i < 100; ++i) device.allocate(64, MemoryKind::kDevice);
  }
  EXPECT_EQ(fake_cuda().in_use(), 0U);
}

TEST_F(CudaCalls, StreamsOfCommunicationComeFirst) {
  CudaDevice device(0);
  device.make_stream();
  EXPECT_EQ(fake_cuda().last_priority, -5);
  CudaStream(0).native();
  EXPECT_EQ(fake_cuda().last_priority, 0);
}

TEST_F(CudaCalls, KernelsAreLoadedBeforeAnyIsLaunched) {
  CudaDevice device(0);
  fake_cuda().spins = true;
  const auto stream = device.make_stream();
  alignas(16) std::byte memory[256] = {};
  const void* const source = memory;
  const CopyChunk chunk{.tensor = memory, .offset = 0, .count = 1};
  std::uint32_t flag = 0;
  const std::vector<std::size_t> positions{0}, ends{1};
  const RowGroups groups{.count = 1, .positions = positions, .ends = ends};
  const std::vector<std::int64_t> index{0};
  for (const DType dtype : kNumberDTypes) {
    for (const ReduceOp op : kNumberOps) {
      device.kernels().reduce(*stream, dtype, op, memory, {&source, 1}, 1, 1.0);
    }
    for (const DType bucket : kNumberDTypes) {
      for (const auto direction : {CopyDirection::kPack, CopyDirection::kUnpack}) {
        for (const double scale : {1.0, 0.5}) {
          for (std::uint32_t* const checked : {static_cast<std::uint32_t*>(nullptr), &flag}) {
            device.kernels().copy_batched(*stream, {.direction = direction,
                                                    .chunks = {&chunk, 1},
                                                    .bucket = memory,
                                                    .tensor_dtype = dtype,
                                                    .bucket_dtype = bucket,
                                                    .scale = scale,
                                                    .non_finite = checked});
          }
        }
      }
    }
    for (std::size_t width = 1; width <= 16; width *= 2) {
      const std::size_t bytes = width * size_of(dtype);
      device.kernels().sum_rows(*stream, groups, memory, width, dtype, 1.0, memory + 128);
      device.kernels().spread_rows(*stream, index, memory, bytes, memory, 1);
    }
  }
  EXPECT_GT(fake_cuda().launches, 300);
  EXPECT_EQ(fake_cuda().lazy_loads, 0);
  EXPECT_EQ(fake_cuda().waits, 0);
}

TEST_F(CudaCalls, AGroupTakesItsShareOfTheDevice) {
  const CudaDevice device(0);
  connect(device);
  EXPECT_EQ(fake_nccl().most_blocks, NCCL_CONFIG_UNDEF_INT) << "NCCL decides for the job";
  NcclConnector connector(device, kAmple);
  connector.connect(connector.make_unique_id(), 0, 2).reset();
  EXPECT_EQ(fake_nccl().most_blocks, 132 / 8);
  while (fake_nccl().called("aborted") < 2) std::this_thread::yield();
}

TEST_F(CudaCalls, ADeviceIsOpenedWithAllItsQueues) {
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  open_device("cuda", 0);
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  open_device("cuda", 0);
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "1") << "the user has decided";
}

TEST_F(CudaCalls, AStuckDeviceFreesNothing) {
  CudaDevice device(0);
  {
    const auto stream = device.make_stream();
    const DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
    const DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
    const DeviceMemory pooled = device.allocate_on(*stream, 64);
    device.Device::note_stuck();  // The override also changes how this process ends.
  }
  EXPECT_EQ(fake_cuda().in_use(), 3U);
}

TEST_F(CudaCalls, AStuckDeviceDoesNotKeepTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        std::atexit([] { ::abort(); });  // what waits for the device at the end of a process
        CudaDevice(0).note_stuck();
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace kolo::test
