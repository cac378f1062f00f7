#include "comm/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/device_conformance_tests.h"

namespace kolo::test {
namespace {

class CudaUnderTest final : public DeviceUnderTest {
 public:
  /// Waits for all streams, because they use memory of the test.
  ~CudaUnderTest() override { cudaDeviceSynchronize(); }

  Device& device() override { return device_; }
  void advance() override { std::this_thread::yield(); }
  NativeStream as_callers(Stream& stream) override { return {stream.native()}; }
  void hold(Stream& stream, const std::atomic<bool>& released) override {
    device_.freeing()->finish();  // Freeing memory may wait for the held work, and block CUDA.
    const auto wait = [](void* flag) {
      while (!static_cast<const std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    require_cuda(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.native()), wait,
                                    const_cast<std::atomic<bool>*>(&released)),
                 "cudaLaunchHostFunc");
  }
  bool counts_heap() const override { return false; }  // allocations inside CUDA do not count

 private:
  CudaDevice device_{0};
};

std::string why_unavailable() {
  const CudaAvailability found = find_cuda_devices();
  return found.device_count > 0 ? "" : "no CUDA device: " + found.reason;
}

DeviceCase cuda_case() {
  return {.name = "cuda",
          .open = [] { return std::make_unique<CudaUnderTest>(); },
          .unavailable = why_unavailable()};
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance, testing::Values(cuda_case()), device_case_name);

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_unavailable();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(CudaDeviceTest, IsNamedByNumberModelAndBusId) {
  char bus_id[32] = {};
  ASSERT_EQ(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0), cudaSuccess);
  std::string text = CudaDevice(0).describe();
  EXPECT_TRUE(text.starts_with("cuda:0 (")) << text;
  for (char* c = bus_id; *c != '\0'; ++c) *c = static_cast<char>(std::tolower(*c));
  EXPECT_NE(text.find(bus_id), std::string::npos) << text;
}

TEST_F(CudaDeviceTest, MemoryThatIsNotThereIsAResourceErrorAndLeavesNoTrace) {
  CudaDevice device(0);
  try {
    const DeviceMemory memory = device.allocate(std::size_t{1} << 50, MemoryKind::kDevice);
    FAIL() << "a pebibyte";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kResources);
    EXPECT_NE(std::string(error.what()).find("1125899906842624"), std::string::npos);
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(device.allocation_counts().allocations, 0u);
}

TEST_F(CudaDeviceTest, AnErrorIsTheLastOneNoMoreWhenItIsWrapped) {
  EXPECT_THROW(require_cuda(cudaSetDevice(-1), "cudaSetDevice"), KoloError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  log_cuda(cudaSetDevice(-1), "cudaSetDevice");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, AnEventThatIsNotReadyLeavesNoError) {
  CudaUnderTest under_test;
  std::atomic<bool> released{false};
  const auto stream = under_test.device().make_stream();
  const auto event = under_test.device().make_event();
  under_test.hold(*stream, released);
  stream->record(*event);
  EXPECT_FALSE(event->done());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  released = true;
  while (!event->done()) std::this_thread::yield();
}

TEST_F(CudaDeviceTest, AStreamThatEndsFinishesItsWork) {
  CudaUnderTest under_test;
  // Copies to device memory, because copies between host buffers block the caller in CUDA.
  const DeviceMemory source = under_test.device().allocate(64, MemoryKind::kPinned);
  const DeviceMemory middle = under_test.device().allocate(64, MemoryKind::kDevice);
  const DeviceMemory target = under_test.device().allocate(64, MemoryKind::kPinned);
  std::memset(source.data(), 42, 64);
  std::memset(target.data(), 0, 64);
  const auto event = under_test.device().make_event();
  std::atomic<bool> released{false};
  {
    const auto stream = under_test.device().make_stream();
    under_test.hold(*stream, released);
    stream->copy({middle.data(), 64, DType::kUInt8, MemoryKind::kDevice},
                 {source.data(), 64, DType::kUInt8, MemoryKind::kPinned});
    stream->copy({target.data(), 64, DType::kUInt8, MemoryKind::kPinned},
                 {middle.data(), 64, DType::kUInt8, MemoryKind::kDevice});
    stream->record(*event);
  }
  EXPECT_FALSE(event->done());
  released = true;
  while (!event->done()) std::this_thread::yield();
  EXPECT_EQ(std::memcmp(target.data(), source.data(), 64), 0);
}

TEST_F(CudaDeviceTest, MemoryThatGoesWhileWorkIsHeldDelaysNoOtherStream) {
  std::atomic<bool> released{false};
  CudaUnderTest under_test;
  auto& device = static_cast<CudaDevice&>(under_test.device());
  const auto held = device.make_stream(), other = device.make_stream();
  const auto event = device.make_event();
  const DeviceMemory source = device.allocate(64, MemoryKind::kDevice);
  const DeviceMemory target = device.allocate(64, MemoryKind::kDevice);
  DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
  DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
  const std::vector<const void*> sources(2, source.data());
  const auto work = [&] {
    device.kernels().reduce(*other, DType::kUInt8, ReduceOp::kSum, target.data(), sources, 64, 1.0);
    other->record(*event);
    while (!event->done()) std::this_thread::yield();
  };
  work();  // loads the kernel

  under_test.hold(*held, released);
  pinned = {};
  memory = {};
  device.freeing()->finish();  // CUDA has freed them, or waits for the held work.
  auto done = std::async(std::launch::async, work);
  EXPECT_EQ(done.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  released = true;
  done.get();
}

TEST_F(CudaDeviceTest, AStreamThatIsBeingCapturedIsRefusedAndItsCaptureGoesOn) {
  CudaUnderTest under_test;
  Device& device = under_test.device();
  const auto event = device.make_event();
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreate(&native), cudaSuccess);
  const NativeStream callers{native};
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(device.record(callers, *event), UsageError);
  EXPECT_THROW(device.wait(callers, *event), UsageError);
  EXPECT_THROW(device.record(NativeStream{}, *event), UsageError)
      << "it waits for the captured one";
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  device.record(callers, *event);
  while (!event->done()) std::this_thread::yield();
  EXPECT_EQ(cudaStreamDestroy(native), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, ACaptureOfAnotherThreadGoesOn) {
  CudaUnderTest under_test;
  Device& device = under_test.device();
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    const auto stream = device.make_stream();
    const auto event = device.make_event();
    const DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
    const DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
    const DeviceMemory pooled = device.allocate_on(*stream, 64);
    stream->copy({memory.data(), 64, DType::kUInt8, MemoryKind::kDevice},
                 {pinned.data(), 64, DType::kUInt8, MemoryKind::kPinned});
    stream->record(*event);
    while (!event->done()) std::this_thread::yield();
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  EXPECT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

TEST_F(CudaDeviceTest, HostMemoryIsNotOfTheDevice) {
  CudaDevice device(0);
  const DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
  const DeviceMemory pinned = device.allocate(64, MemoryKind::kPinned);
  const std::vector<float> ordinary(16);
  EXPECT_EQ(device.problem_with(memory.data() + 63, 1), "");
  EXPECT_TRUE(device.problem_with(pinned.data(), 64).starts_with("pinned host memory"));
  EXPECT_TRUE(device.problem_with(ordinary.data(), 64).starts_with("memory of no device"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, TheCurrentDeviceOfTheCallerStays) {
  if (find_cuda_devices().device_count < 2) GTEST_SKIP() << "one CUDA device only";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  CudaDevice device(1);
  const DeviceMemory memory = device.allocate(64, MemoryKind::kDevice);
  const auto stream = device.make_stream();
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

}  // namespace
}  // namespace kolo::test
