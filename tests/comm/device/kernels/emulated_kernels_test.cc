// Every kernel of the data plane on the emulated device, bit for bit as its CPU reference.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "comm/base/error.h"
#include "comm/device/kernels/batched_copy.h"
#include "comm/device/kernels/batched_copy_reference.h"
#include "comm/device/kernels/reduce.h"
#include "comm/kernels/reference_kernels.h"
#include "tests/comm/device/kernels/dtype_samples.h"
#include "tests/support/cuda_emulator/device.h"

namespace kolo {
namespace {

constexpr std::uint32_t kSeed = 11;
constexpr std::size_t kMargin = 64;  // Elements around what a kernel may write, compared too.

/// Bytes at a multiple of 16 and at the end of their allocation, for AddressSanitizer.
class Memory {
 public:
  explicit Memory(const std::vector<std::byte>& bytes)
      : words_((bytes.size() + 15) / 16), shift_(words_.size() * 16 - bytes.size()) {
    std::ranges::copy(bytes, data());
  }
  // Samples have a count of elements that is a multiple of 16, so that this is one of 16 bytes.
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()) + shift_; }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };
  std::vector<Word> words_;
  std::size_t shift_;
};

bool equal(Memory& memory, const std::vector<std::byte>& bytes) {
  return std::ranges::equal(bytes, std::span(memory.data(), bytes.size()));
}

std::size_t round_up(std::size_t count) { return (count + 15) / 16 * 16; }

// Pieces between tensors, which lie in one block of memory, and a bucket, at any element of both.
struct Piece {
  std::size_t tensor, offset, count;  // elements
  bool is_gap;
};

std::vector<Piece> make_pieces(std::mt19937& random) {
  std::vector<std::size_t> counts = {0, 1, 2, 3, 7, 8, 15, 16, 31, 100, 1023, 9001};
  std::ranges::shuffle(counts, random);
  std::vector<Piece> pieces;
  std::size_t tensor = random() % 20;
  std::size_t offset = random() % 20;
  for (const std::size_t count : counts) {
    pieces.push_back(
        {.tensor = tensor, .offset = offset, .count = count, .is_gap = random() % 5 == 0});
    tensor += count + random() % 3 * (random() % 20);
    offset += count + random() % 2 * (random() % 20);
  }
  return pieces;
}

class EmulatedCopyTest : public testing::Test {
 protected:
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
  static void expect_equal(const std::vector<Piece>& pieces, BatchedCopy copy, bool looks) {
    const std::size_t last = std::max(pieces.back().tensor, pieces.back().offset);
    const std::size_t count = round_up(last + pieces.back().count + kMargin);
    auto tensors = test::samples(copy.tensor_dtype, count, kSeed);
    auto bucket = test::samples(copy.bucket_dtype, count, kSeed + 1);
    Memory device_tensors(tensors);
    Memory device_bucket(bucket);
    std::uint32_t flag = 0;
    std::uint32_t device_flag = 0;
    const auto host_chunks = chunks(pieces, tensors.data(), copy.tensor_dtype);
    const auto device_chunks = chunks(pieces, device_tensors.data(), copy.tensor_dtype);

    copy.chunks = host_chunks;
    copy.bucket = bucket.data();
    copy.non_finite = looks ? &flag : nullptr;
    copy_batched_on_host(copy);
    copy.chunks = device_chunks;
    copy.bucket = device_bucket.data();
    copy.non_finite = looks ? &device_flag : nullptr;
    launch_batched_copy(copy, nullptr);

    ASSERT_TRUE(equal(device_bucket, bucket));
    ASSERT_TRUE(equal(device_tensors, tensors));
    ASSERT_EQ(device_flag, flag);
  }
};

TEST_F(EmulatedCopyTest, EveryPairOfDtypesBothWaysAsOnTheHost) {
  std::uint32_t seed = kSeed;
  for (const DType tensor_dtype : kNumberDTypes) {
    for (const DType bucket_dtype : kNumberDTypes) {
      for (const double scale : {1.0, 1.0 / 3}) {
        for (const auto direction : {CopyDirection::kPack, CopyDirection::kUnpack}) {
          for (const bool looks : {false, true}) {
            ++seed;
            SCOPED_TRACE(testing::Message() << "tensors " << to_string(tensor_dtype) << ", bucket "
                                            << to_string(bucket_dtype) << ", scale " << scale
                                            << ", unpacks " << (direction == CopyDirection::kUnpack)
                                            << ", looks " << looks << ", seed " << seed);
            std::mt19937 random(seed);
            emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 6});
            expect_equal(make_pieces(random),
                         {.direction = direction,
                          .tensor_dtype = tensor_dtype,
                          .bucket_dtype = bucket_dtype,
                          .scale = scale},
                         looks);
          }
        }
      }
    }
  }
}

TEST_F(EmulatedCopyTest, OneElementAndTheLargestChunkAtEveryAlignment) {
  for (const DType dtype : {DType::kUInt8, DType::kBFloat16, DType::kFloat32}) {
    for (std::size_t shift = 0; shift < 17; ++shift) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", shift " << shift);
      emulator::Device device({.seed = kSeed, .resident_blocks = 2});
      const std::size_t most = kCopyChunkBytes / size_of(dtype);
      const std::vector<Piece> pieces = {
          {.tensor = shift, .offset = 3, .count = 1, .is_gap = false},
          {.tensor = shift + 1, .offset = 4, .count = most, .is_gap = false}};
      for (const auto direction : {CopyDirection::kPack, CopyDirection::kUnpack}) {
        expect_equal(pieces, {.direction = direction, .tensor_dtype = dtype, .bucket_dtype = dtype},
                     true);
      }
    }
  }
}

TEST_F(EmulatedCopyTest, FlagStaysDownForFiniteValuesAndRisesForOne) {
  emulator::Device device({.seed = kSeed});
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

// Sources of their own alignment each; the target is the first of them, or apart.
void expect_equal_sums(DType dtype, ReduceOp op, std::size_t num_sources, std::size_t count,
                       std::size_t shift, double scale) {
  SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << to_string(op) << " of "
                                  << num_sources << " times " << count << ", shift " << shift
                                  << ", scale " << scale << ", seed " << kSeed);
  const std::size_t bytes = size_of(dtype);
  std::vector<std::vector<std::byte>> host;
  std::vector<Memory> on_device;
  std::vector<const void*> host_sources, device_sources;
  for (std::size_t s = 0; s < num_sources; ++s) {
    const std::size_t first = (shift + s * (shift != 0)) % 16;
    host.push_back(
        test::samples(dtype, round_up(first + count), kSeed + static_cast<std::uint32_t>(s)));
    on_device.emplace_back(host.back());
    host_sources.push_back(host.back().data() + first * bytes);
    device_sources.push_back(on_device.back().data() + first * bytes);
  }
  for (const bool in_place : {false, true}) {
    auto target =
        in_place ? host[0] : test::samples(dtype, round_up(count + shift + kMargin), kSeed + 999);
    Memory apart(target);
    const std::size_t at = shift * bytes;
    std::vector<const void*> sources = device_sources;
    if (in_place) sources[0] = apart.data() + at;
    launch_reduce(dtype, op, apart.data() + at, sources, count, scale, nullptr);
    reference::reduce(dtype, op, target.data() + at, host_sources, count, scale);
    ASSERT_TRUE(equal(apart, target)) << "in place: " << in_place;
  }
}

TEST(EmulatedReduceTest, EveryDtypeAndOperationAsOnTheHost) {
  for (const std::size_t resident_blocks : {1u, 4u}) {
    emulator::Device device({.seed = kSeed, .resident_blocks = resident_blocks});
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
    emulator::Device device({.seed = kSeed + 1, .resident_blocks = resident_blocks});
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
  emulator::Device device({.seed = kSeed});
  const std::vector<const void*> sources(kMostReduceSources + 1);
  const auto reduce = [&](std::size_t n) {
    launch_reduce(DType::kFloat32, ReduceOp::kSum, nullptr, std::span(sources).first(n), 0, 1.0,
                  nullptr);
  };
  EXPECT_THROW(reduce(0), UsageError);
  EXPECT_THROW(reduce(kMostReduceSources + 1), UsageError);
}

}  // namespace
}  // namespace kolo
