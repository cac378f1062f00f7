// Compares every kernel of the data plane, on the emulated device, with its CPU reference bit by
// bit.

#include <algorithm>
#include <random>
#include <span>

#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "comm/device/kernels/kernels.h"
#include "tests/comm/device/kernels/kernel_cases.h"
#include "tests/comm/device/kernels/row_cases.h"
#include "tests/support/cuda_emulator/device.h"

namespace kolo {
namespace {

using test::kKernelSeed;

/// Bytes that begin at a multiple of 16 and end with their allocation, so that AddressSanitizer
/// detects accesses beyond them.
class Memory {
 public:
  explicit Memory(const std::vector<std::byte>& bytes)
      : words_((bytes.size() + 15) / 16), shift_(words_.size() * 16 - bytes.size()) {
    std::ranges::copy(bytes, data());
  }
  // Samples have a multiple of 16 elements, so the address is a multiple of 16 bytes.
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()) + shift_; }
  std::vector<std::byte> bytes(std::size_t count) { return {data(), data() + count}; }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };
  std::vector<Word> words_;
  std::size_t shift_;
};

void expect_equal_copies(const std::vector<test::Piece>& pieces, const BatchedCopy& what,
                         bool looks) {
  test::expect_equal_copies(pieces, what, looks, [&](BatchedCopy copy, test::CopyMemory memory) {
    Memory tensors(memory.tensors), bucket(memory.bucket);
    const auto chunks = test::chunks(pieces, tensors.data(), copy.tensor_dtype);
    copy.chunks = chunks;
    copy.bucket = bucket.data();
    copy.non_finite = looks ? &memory.flag : nullptr;
    launch_batched_copy(copy, nullptr);
    memory.tensors = tensors.bytes(memory.tensors.size());
    memory.bucket = bucket.bytes(memory.bucket.size());
    return memory;
  });
}

TEST(EmulatedCopyTest, EveryPairOfDtypesBothWaysAsOnTheHost) {
  std::uint32_t seed = kKernelSeed;
  test::for_all_copies([&](const BatchedCopy& copy, bool looks) {
    ++seed;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 6});
    std::vector<std::size_t> counts = {0, 1, 2, 3, 7, 8, 15, 16, 31, 100, 1023, 9001};
    std::ranges::shuffle(counts, random);
    expect_equal_copies(test::make_pieces(counts, random), copy, looks);
  });
}

TEST(EmulatedCopyTest, OneElementAndTheLargestChunkAtEveryAlignment) {
  for (const DType dtype : {DType::kUInt8, DType::kBFloat16, DType::kFloat32}) {
    for (std::size_t shift = 0; shift < 17; ++shift) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", shift " << shift);
      emulator::Device device({.seed = kKernelSeed, .resident_blocks = 2});
      const std::size_t most = kCopyChunkBytes / size_of(dtype);
      const std::vector<test::Piece> pieces = {{shift, 3, 1}, {shift + 1, 4, most}};
      for (const auto direction : {CopyDirection::kPack, CopyDirection::kUnpack}) {
        expect_equal_copies(
            pieces, {.direction = direction, .tensor_dtype = dtype, .bucket_dtype = dtype}, true);
      }
    }
  }
}

TEST(EmulatedCopyTest, FlagStaysDownForFiniteValuesAndRisesForOne) {
  emulator::Device device({.seed = kKernelSeed});
  std::vector<float> tensor(10000, 1.0f);
  std::vector<float> bucket(tensor.size());
  for (const bool has_infinity : {false, true}) {
    if (has_infinity) tensor[7777] = std::numeric_limits<float>::infinity();
    std::uint32_t flag = 0;
    const CopyChunk chunk{.tensor = tensor.data(), .offset = 0, .count = tensor.size()};
    launch_batched_copy({.chunks = {&chunk, 1}, .bucket = bucket.data(), .non_finite = &flag},
                        nullptr);
    EXPECT_EQ(flag, has_infinity ? 1u : 0u);
    EXPECT_EQ(bucket, tensor);
  }
}

void expect_equal_sums(DType dtype, ReduceOp op, std::size_t num_sources, std::size_t count,
                       std::size_t shift, double scale) {
  test::expect_equal_sums(
      dtype, op, num_sources, count, shift, scale,
      [](const std::vector<std::byte>& bytes) { return Memory(bytes); },
      [](auto... what) { launch_reduce(what..., nullptr); },
      [](Memory& memory, std::size_t bytes) { return memory.bytes(bytes); });
}

TEST(EmulatedReduceTest, EveryDtypeAndOperationAsOnTheHost) {
  for (const std::size_t resident_blocks : {1u, 4u}) {
    emulator::Device device({.seed = kKernelSeed, .resident_blocks = resident_blocks});
    for (const DType dtype : kNumberDTypes) {
      for (const ReduceOp op : kNumberOps) {
        expect_equal_sums(dtype, op, 3, 10007, 0, 1.0);
        expect_equal_sums(dtype, op, 2, 10007, 1, 1.0 / 3);
      }
    }
  }
}

TEST(EmulatedReduceTest, AnyCountAlignmentAndNumberOfSources) {
  for (const std::size_t resident_blocks : {1u, 5u}) {
    emulator::Device device({.seed = kKernelSeed + 1, .resident_blocks = resident_blocks});
    for (const DType dtype : kNumberDTypes) {
      for (const std::size_t count : {0u, 1u, 3u, 4u, 15u, 16u, 17u, 255u, 4096u}) {
        for (const std::size_t shift : {0u, 1u, 5u, 15u}) {
          expect_equal_sums(dtype, ReduceOp::kSum, 2, count, shift, 0.5);
        }
      }
      expect_equal_sums(dtype, ReduceOp::kSum, 1, 5000, 0, 0.5);
      expect_equal_sums(dtype, ReduceOp::kAverage, kMostReduceSources, 700, 1, 1.0 / 64);
    }
    expect_equal_sums(DType::kBFloat16, ReduceOp::kSum, 2, 300001, 3, 1.0);
  }
}

TEST(EmulatedReduceTest, RefusesMoreSourcesThanOneLaunchTakes) {
  emulator::Device device({.seed = kKernelSeed});
  const std::vector<const void*> sources(kMostReduceSources + 1);
  const auto reduce = [&](std::size_t n) {
    launch_reduce(DType::kFloat32, ReduceOp::kSum, nullptr, std::span(sources).first(n), 0, 1.0,
                  nullptr);
  };
  EXPECT_THROW(reduce(0), UsageError);
  EXPECT_THROW(reduce(kMostReduceSources + 1), UsageError);
}

TEST(EmulatedRowsTest, SumsOfGroupsAsOnTheHost) {
  std::uint32_t seed = test::kRowSeed;
  test::expect_row_sums([&](test::RowSums on_device) {
    ++seed;
    emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 6});
    launch_row_sums(on_device.groups(), on_device.rows.data() + on_device.rows_at, on_device.width,
                    on_device.dtype, on_device.scale, on_device.sums.data() + on_device.sums_at,
                    nullptr);
    return on_device.sums;
  });
}

TEST(EmulatedRowsTest, SpreadOverATableAsOnTheHost) {
  std::uint32_t seed = test::kRowSeed;
  test::expect_row_spread([&](test::RowSpread on_device) {
    ++seed;
    emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 6});
    launch_row_spread(on_device.indices, on_device.rows.data() + on_device.rows_at,
                      on_device.row_bytes, on_device.table.data() + on_device.table_at,
                      on_device.height, nullptr);
    return on_device.table;
  });
}

}  // namespace
}  // namespace kolo
