// Compares every kernel of the data plane on a GPU, bit for bit, with its CPU reference.

#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "comm/device/kernels/kernels.h"
#include "tests/comm/device/kernels/kernel_cases.h"
#include "tests/comm/device/kernels/row_cases.h"
#include "tests/support/gpu_test.h"

namespace kolo {
namespace {

class BatchedCopyGpuTest : public test::GpuTest {
 protected:
  void expect_equal(const std::vector<test::Piece>& pieces, const BatchedCopy& what, bool looks) {
    test::expect_equal_copies(pieces, what, looks, [&](BatchedCopy copy, test::CopyMemory memory) {
      const DeviceMemory tensors = upload(memory.tensors);
      const DeviceMemory bucket = upload(memory.bucket);
      const DeviceMemory flag = upload(std::as_bytes(std::span(&memory.flag, 1)));
      const auto for_device = test::chunks(pieces, tensors.data(), copy.tensor_dtype);
      const DeviceMemory chunks = upload(std::as_bytes(std::span(for_device)));
      copy.chunks = {reinterpret_cast<const CopyChunk*>(chunks.data()), for_device.size()};
      copy.bucket = bucket.data();
      copy.non_finite = looks ? reinterpret_cast<std::uint32_t*>(flag.data()) : nullptr;
      device->kernels().copy_batched(*stream, copy);
      memory.bucket = download(bucket, memory.bucket.size());
      memory.tensors = download(tensors, memory.tensors.size());
      const auto raised = download(flag, sizeof memory.flag);
      std::memcpy(&memory.flag, raised.data(), sizeof memory.flag);
      return memory;
    });
  }
};

// Counts are from one element to more than any planner makes.
TEST_F(BatchedCopyGpuTest, EveryPairOfDtypesBothWaysAsOnTheHost) {
  std::mt19937 random(test::kKernelSeed);
  const auto pieces = test::make_pieces(
      {1,    1,    2,    2,    3,    3,    7, 7,  8,     8,     16, 31, 31, 100,
       1023, 1023, 4096, 8192, 8193, 8193, 5, 64, 70001, 70001, 0,  5,  64, 40000},
      random);
  test::for_all_copies(
      [&](const BatchedCopy& copy, bool looks) { expect_equal(pieces, copy, looks); });
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
  void expect_equal(DType dtype, ReduceOp op, std::size_t num_sources, std::size_t count,
                    std::size_t shift, double scale) {
    test::expect_equal_sums(
        dtype, op, num_sources, count, shift, scale,
        [&](const std::vector<std::byte>& bytes) { return upload(bytes); },
        [&](auto... what) { device->kernels().reduce(*stream, what...); },
        [&](const DeviceMemory& memory, std::size_t bytes) { return download(memory, bytes); });
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
  const auto input = test::samples(DType::kFloat32, 100000, test::kKernelSeed);
  const DeviceMemory a = upload(input);
  const DeviceMemory b = upload(input);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  const auto reduce = [&] {
    device->kernels().reduce(*stream, DType::kFloat32, ReduceOp::kSum, a.data(), sources, 100000,
                             0.5);
  };
  reduce();  // loads the kernel
  settle();
  const AllocationCounts counts = device->allocation_counts();
  // Other programs may use the GPU, so one undisturbed try is enough.
  std::size_t free_before = 0, free_after = 1, total = 0;
  for (int tries = 0; tries < 20 && free_after != free_before; ++tries) {
    ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
    for (int i = 0; i < 100; ++i) reduce();
    ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  }
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(device->allocation_counts().allocations, counts.allocations);
}

class RowsGpuTest : public test::GpuTest {
 protected:
  template <typename T>
  static std::span<const T> as_list(const DeviceMemory& memory, std::size_t count) {
    return {reinterpret_cast<const T*>(memory.data()), count};
  }
};

TEST_F(RowsGpuTest, SumsOfGroupsAsOnTheHost) {
  test::expect_row_sums([&](const test::RowSums& host) {
    const DeviceMemory positions = upload(std::as_bytes(std::span(host.positions)));
    const DeviceMemory ends = upload(std::as_bytes(std::span(host.ends)));
    const DeviceMemory rows = upload(host.rows);
    const DeviceMemory sums = upload(host.sums);
    const RowGroups groups{.count = host.count,
                           .positions = as_list<std::size_t>(positions, host.positions.size()),
                           .ends = as_list<std::size_t>(ends, host.ends.size())};
    device->kernels().sum_rows(*stream, groups, rows.data() + host.rows_at, host.width, host.dtype,
                               host.scale, sums.data() + host.sums_at);
    return download(sums, host.sums.size());
  });
}

TEST_F(RowsGpuTest, SpreadOverATableAsOnTheHost) {
  test::expect_row_spread([&](const test::RowSpread& host) {
    const DeviceMemory indices = upload(std::as_bytes(std::span(host.indices)));
    const DeviceMemory rows = upload(host.rows);
    const DeviceMemory table = upload(host.table);
    device->kernels().spread_rows(*stream, as_list<std::int64_t>(indices, host.indices.size()),
                                  rows.data() + host.rows_at, host.row_bytes,
                                  table.data() + host.table_at, host.height);
    return download(table, host.table.size());
  });
}

}  // namespace
}  // namespace kolo
