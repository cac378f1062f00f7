#include "fusion/device_packer.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "comm/base/half.h"
#include "tests/support/device/host_device.h"

namespace kolo {
namespace {

constexpr std::size_t kCount = 40;
constexpr std::uint64_t kSeeds = 50;

// A bucket of 40 bfloat16 elements with three tensors of two dtypes. It is cut in the middle of the
// second tensor.
class DevicePackerTest : public testing::Test {
 protected:
  DevicePackerTest() {
    std::iota(a.begin(), a.end(), 1.0f);
    std::iota(b.begin(), b.end(), 100.0);
    std::iota(c.begin(), c.end(), 200.0f);
    pack(segments, {packed.data(), kCount, DType::kBFloat16}, 0, 1.0);
  }

  DevicePackerOptions options() const {
    return {.bucket_dtype = DType::kBFloat16, .bucket_count = kCount, .cuts = {20}};
  }

  std::vector<float> a = std::vector<float>(10);
  std::vector<double> b = std::vector<double>(12);
  std::vector<float> c = std::vector<float>(6);
  std::vector<Segment> segments = {
      {.data = a.data(), .dtype = DType::kFloat32, .count = 10, .offset = 0},
      {.data = b.data(), .dtype = DType::kFloat64, .count = 12, .offset = 16},
      {.data = c.data(), .dtype = DType::kFloat32, .count = 6, .offset = 32}};
  std::vector<BFloat16> packed = std::vector<BFloat16>(kCount);
};

TEST_F(DevicePackerTest, PacksAndUnpacksRangesOnDifferentStreamsInAnyInterleaving) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    SeededHostDevice device(seed);
    const auto left = device.make_stream();
    const auto right = device.make_stream();
    DevicePacker packer(device, segments, options());

    // A range need not be in memory of the whole bucket.
    std::vector<BFloat16> low(20), high(20);
    packer.pack(*left, 0, 20, low.data());
    packer.pack(*right, 20, 20, high.data());
    device.settle();
    EXPECT_TRUE(std::equal(low.begin(), low.end(), packed.begin()));
    EXPECT_TRUE(std::equal(high.begin(), high.end(), packed.begin() + 20));

    const auto a_before = a;
    const auto b_before = b;
    std::fill(a.begin(), a.end(), -1.0f);
    std::fill(b.begin(), b.end(), -1.0);
    packer.unpack(*right, 0, 20, low.data());
    packer.unpack(*left, 20, 20, high.data());
    device.settle();
    EXPECT_EQ(a, a_before);
    EXPECT_EQ(b, b_before);
  }
}

TEST_F(DevicePackerTest, UnpackScalesAndRaisesTheFlagOnlyForValuesThatAreNotFinite) {
  SeededHostDevice device(1);
  const auto stream = device.make_stream();
  std::uint32_t non_finite = 0;
  auto with_flag = options();
  with_flag.unpack_scale = 0.5;
  with_flag.non_finite = &non_finite;
  DevicePacker packer(device, segments, with_flag);
  packed[12] = {0x7f80};  // in a gap, so it belongs to no tensor
  packer.unpack(*stream, 0, kCount, packed.data());
  device.settle();
  EXPECT_EQ(non_finite, 0u);
  EXPECT_EQ(a[4], 2.5f);
  packed[33] = {0x7f80};
  packer.unpack(*stream, 0, kCount, packed.data());
  device.settle();
  EXPECT_EQ(non_finite, 1u);
}

TEST_F(DevicePackerTest, RebindIsSeenByTheNextLaunchOfAnyStream) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    SeededHostDevice device(seed);
    const auto left = device.make_stream();
    const auto right = device.make_stream();
    DevicePacker packer(device, segments, options());
    std::vector<BFloat16> bucket(kCount);
    packer.pack(*left, 0, kCount, bucket.data());
    device.settle();
    std::vector<double> other(12, 7.0);
    packer.rebind(1, other.data(), nullptr);
    packer.pack(*left, 0, 20, bucket.data());
    packer.pack(*right, 20, 20, bucket.data() + 20);
    device.settle();
    EXPECT_EQ(to_float(bucket[9]), a[9]);
    EXPECT_EQ(to_float(bucket[16]), 7.0f);
    EXPECT_EQ(to_float(bucket[27]), 7.0f);
    EXPECT_EQ(to_float(bucket[32]), c[0]);
  }
}

TEST_F(DevicePackerTest, ContributionsMayLieElsewhere) {
  SeededHostDevice device(1);
  const auto stream = device.make_stream();
  std::vector<float> results(10, -1);
  for (Segment& segment : segments) segment.input = segment.data;
  segments[0].data = results.data();
  auto apart = options();
  apart.out_of_place = true;
  DevicePacker packer(device, segments, apart);
  std::vector<BFloat16> bucket(kCount);
  packer.pack(*stream, 0, kCount, bucket.data());
  packer.unpack(*stream, 0, kCount, bucket.data());
  device.settle();
  EXPECT_EQ(bucket, packed);
  EXPECT_EQ(results, a);

  const std::vector<float> next(10, 7);
  std::vector<float> last(10, -1);
  packer.rebind(0, last.data(), next.data());
  packer.pack(*stream, 0, kCount, bucket.data());
  packer.unpack(*stream, 0, kCount, bucket.data());
  device.settle();
  EXPECT_EQ(last, next);
  EXPECT_EQ(results, a);
}

TEST_F(DevicePackerTest, RebindUnderAnUploadIsRefused) {
  SeededHostDevice device(1);
  const auto stream = device.make_stream();
  DevicePacker packer(device, segments, options());
  packer.pack(*stream, 0, kCount, packed.data());
  EXPECT_THROW(packer.rebind(0, c.data(), nullptr), KoloError);
  device.settle();
  packer.rebind(0, a.data(), nullptr);
}

TEST_F(DevicePackerTest, SteadyStepIsOneOperationPerDtypeAndAllocatesNothing) {
  SeededHostDevice device(1);
  const auto stream = device.make_stream();
  DevicePacker packer(device, segments, options());
  packer.pack(*stream, 0, kCount, packed.data());
  device.settle();
  const AllocationCounts before = device.allocation_counts();
  packer.pack(*stream, 0, kCount, packed.data());
  packer.unpack(*stream, 0, kCount, packed.data());
  int operations = 0;
  while (device.step()) ++operations;
  EXPECT_EQ(operations, 4) << "float32 and float64, each way, and no upload";
  const AllocationCounts after = device.allocation_counts();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
}

TEST_F(DevicePackerTest, EmptyBucketNeedsNothing) {
  SeededHostDevice device(1);
  const auto stream = device.make_stream();
  DevicePacker packer(device, {}, {});
  packer.pack(*stream, 0, 0, nullptr);
  packer.unpack(*stream, 0, 0, nullptr);
  EXPECT_FALSE(device.step());
}

}  // namespace
}  // namespace kolo
