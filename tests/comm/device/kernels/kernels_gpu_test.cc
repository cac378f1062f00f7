// Every kernel of the data plane against its CPU reference, bit by bit.

#include <cuda_runtime_api.h>

#include <array>
#include <random>
#include <vector>

#include "comm/device/kernels/batched_copy_reference.h"
#include "comm/kernels/reduce_kernels.h"
#include "tests/comm/device/kernels/dtype_samples.h"
#include "tests/support/gpu_test.h"

namespace kolo {
namespace {

constexpr std::uint32_t kSeed = 11;

// Pieces between tensors, which lie in one block of memory, and a bucket, at any element of both.
class BatchedCopyGpuTest : public test::GpuTest {
 protected:
  struct Piece {
    std::size_t tensor, offset, count;  // elements
    bool is_gap;
  };

  // From single elements to more than any planner makes, with everything misaligned now and then.
  static std::vector<Piece> pieces() {
    std::mt19937 random(kSeed);
    std::vector<Piece> result;
    std::size_t tensor = 0;
    std::size_t offset = 0;
    for (const std::size_t count : {1u, 2u, 3u, 7u, 8u, 16u, 31u, 100u, 1023u, 4096u, 8192u, 8193u,
                                    70001u, 0u, 5u, 64u, 40000u}) {
      for (int i = 0; i < 2; ++i) {
        const bool is_gap = random() % 4 == 0;
        result.push_back({.tensor = tensor, .offset = offset, .count = count, .is_gap = is_gap});
        tensor += count + random() % 3 * (random() % 20);
        offset += count + random() % 2 * (random() % 20);
      }
    }
    return result;
  }

  static std::vector<CopyChunk> chunks(const std::vector<Piece>& pieces, std::byte* tensors,
                                       DType tensor_dtype) {
    std::vector<CopyChunk> result;
    for (const Piece& piece : pieces) {
      result.push_back(
          {.tensor = piece.is_gap ? nullptr : tensors + piece.tensor * size_of(tensor_dtype),
           .offset = piece.offset,
           .count = piece.count});
    }
    return result;
  }

  // Runs `copy` on both sides and compares everything that it might have written.
  void expect_equal(CopyDirection direction, DType tensor_dtype, DType bucket_dtype, double scale,
                    bool looks) {
    const auto places = pieces();
    const std::size_t count = std::max(places.back().tensor, places.back().offset) + 50000;
    auto tensors = test::samples(tensor_dtype, count, kSeed);
    auto bucket = test::samples(bucket_dtype, count, kSeed + 1);
    const DeviceMemory device_tensors = upload(tensors);
    const DeviceMemory device_bucket = upload(bucket);
    std::uint32_t flag = 0;
    const DeviceMemory device_flag = upload(std::as_bytes(std::span(&flag, 1)));
    const auto host_chunks = chunks(places, tensors.data(), tensor_dtype);
    const auto for_device = chunks(places, device_tensors.data(), tensor_dtype);
    const DeviceMemory device_chunks = upload(std::as_bytes(std::span(for_device)));

    BatchedCopy copy{.direction = direction,
                     .chunks = host_chunks,
                     .bucket = bucket.data(),
                     .tensor_dtype = tensor_dtype,
                     .bucket_dtype = bucket_dtype,
                     .scale = scale,
                     .non_finite = looks ? &flag : nullptr};
    copy_batched_on_host(copy);
    copy.chunks = {reinterpret_cast<const CopyChunk*>(device_chunks.data()), for_device.size()};
    copy.bucket = device_bucket.data();
    copy.non_finite = looks ? reinterpret_cast<std::uint32_t*>(device_flag.data()) : nullptr;
    device->kernels().copy_batched(*stream, copy);

    EXPECT_EQ(download(device_bucket, bucket.size()), bucket);
    EXPECT_EQ(download(device_tensors, tensors.size()), tensors);
    const auto raised = download(device_flag, sizeof flag);
    EXPECT_EQ(std::memcmp(raised.data(), &flag, sizeof flag), 0);
  }
};

TEST_F(BatchedCopyGpuTest, EveryPairOfDtypesBothWaysAsOnTheHost) {
  for (const DType tensor_dtype : kNumberDTypes) {
    for (const DType bucket_dtype : kNumberDTypes) {
      for (const double scale : {1.0, 1.0 / 3}) {
        for (const bool looks : {false, true}) {
          SCOPED_TRACE(testing::Message() << "tensors " << to_string(tensor_dtype) << ", bucket "
                                          << to_string(bucket_dtype) << ", scale " << scale
                                          << ", looks " << looks << ", seed " << kSeed);
          expect_equal(CopyDirection::kPack, tensor_dtype, bucket_dtype, scale, looks);
          expect_equal(CopyDirection::kUnpack, tensor_dtype, bucket_dtype, scale, looks);
        }
      }
    }
  }
}

TEST_F(BatchedCopyGpuTest, FlagStaysDownForFiniteValuesAndRisesForOne) {
  std::vector<float> tensor(100000, 1.0f);
  const DeviceMemory bucket = upload(std::as_bytes(std::span(tensor)));
  const std::uint32_t zero = 0;
  for (const bool has_infinity : {false, true}) {
    tensor[77777] = has_infinity ? std::numeric_limits<float>::infinity() : 1.0f;
    const DeviceMemory device_tensor = upload(std::as_bytes(std::span(tensor)));
    const CopyChunk chunk{.tensor = device_tensor.data(), .offset = 0, .count = tensor.size()};
    const DeviceMemory chunks = upload(std::as_bytes(std::span(&chunk, 1)));
    const DeviceMemory flag = upload(std::as_bytes(std::span(&zero, 1)));
    device->kernels().copy_batched(
        *stream, {.chunks = {reinterpret_cast<const CopyChunk*>(chunks.data()), 1},
                  .bucket = bucket.data(),
                  .non_finite = reinterpret_cast<std::uint32_t*>(flag.data())});
    EXPECT_EQ(download(flag, 1).front(), has_infinity ? std::byte{1} : std::byte{0});
  }
}

class ReduceGpuTest : public test::GpuTest {
 protected:
  // Sources of their own alignment each; the target is the first of them, or apart.
  void expect_equal(DType dtype, ReduceOp op, std::size_t num_sources, std::size_t count,
                    std::size_t shift, double scale) {
    SCOPED_TRACE(testing::Message()
                 << to_string(dtype) << " " << to_string(op) << " of " << num_sources << " times "
                 << count << ", shift " << shift << ", scale " << scale << ", seed " << kSeed);
    const std::size_t bytes = size_of(dtype);
    std::vector<std::vector<std::byte>> host;
    std::vector<DeviceMemory> on_device;
    std::vector<const void*> host_sources, device_sources;
    for (std::size_t s = 0; s < num_sources; ++s) {
      const std::size_t first = (shift + s * (shift != 0)) % 16;
      host.push_back(test::samples(dtype, count + 16, kSeed + static_cast<std::uint32_t>(s)));
      on_device.push_back(upload(host.back()));
      host_sources.push_back(host.back().data() + first * bytes);
      device_sources.push_back(on_device.back().data() + first * bytes);
    }
    for (const bool in_place : {false, true}) {
      auto target = in_place ? host[0] : test::samples(dtype, count + 16, kSeed + 999);
      const DeviceMemory apart = upload(target);
      const std::size_t at = shift * bytes;
      std::vector<const void*> sources = device_sources;
      if (in_place) sources[0] = apart.data() + at;
      device->kernels().reduce(*stream, dtype, op, apart.data() + at, sources, count, scale);
      kolo::reduce(dtype, op, target.data() + at, host_sources, count, scale);
      EXPECT_EQ(download(apart, target.size()), target) << "in place: " << in_place;
    }
  }
};

TEST_F(ReduceGpuTest, EveryDtypeAndOperationAsOnTheHost) {
  for (const DType dtype : kNumberDTypes) {
    for (const ReduceOp op : kNumberOps) {
      expect_equal(dtype, op, 3, 10007, 0, 1.0);
      expect_equal(dtype, op, 2, 10007, 1, 1.0 / 3);
    }
  }
}

TEST_F(ReduceGpuTest, AnyCountAlignmentAndNumberOfSources) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kUInt8}) {
    for (const std::size_t count : {0u, 1u, 3u, 4u, 15u, 16u, 17u, 4096u, 3000001u}) {
      for (const std::size_t shift : {0u, 1u, 5u}) {
        expect_equal(dtype, ReduceOp::kSum, 2, count, shift, 0.5);
      }
    }
    expect_equal(dtype, ReduceOp::kSum, 1, 5000, 0, 0.5);
    expect_equal(dtype, ReduceOp::kSum, kMostReduceSources, 5000, 1, 1.0);
  }
}

TEST_F(ReduceGpuTest, RefusesMoreSourcesThanOneLaunchTakes) {
  const std::vector<const void*> sources(kMostReduceSources + 1);
  const auto reduce = [&](std::size_t n) {
    device->kernels().reduce(*stream, DType::kFloat32, ReduceOp::kSum, nullptr,
                             std::span(sources).first(n), 0, 1.0);
  };
  EXPECT_THROW(reduce(0), UsageError);
  EXPECT_THROW(reduce(kMostReduceSources + 1), UsageError);
}

TEST_F(ReduceGpuTest, LaunchesTakeNoDeviceMemory) {
  const auto input = test::samples(DType::kFloat32, 100000, kSeed);
  const DeviceMemory a = upload(input);
  const DeviceMemory b = upload(input);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  const auto reduce = [&] {
    device->kernels().reduce(*stream, DType::kFloat32, ReduceOp::kSum, a.data(), sources, 100000,
                             0.5);
  };
  reduce();  // Loads the kernel.
  settle();
  const AllocationCounts counts = device->allocation_counts();
  std::size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  for (int i = 0; i < 100; ++i) reduce();
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(device->allocation_counts().allocations, counts.allocations);
}

}  // namespace
}  // namespace kolo
