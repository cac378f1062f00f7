#pragma once

// Copies and sums that compare the data plane's kernels bit by bit with their CPU references.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/kernels/kernels.h"
#include "comm/kernels/reference_kernels.h"
#include "tests/comm/device/kernels/dtype_samples.h"

namespace kolo::test {

inline constexpr std::uint32_t kKernelSeed = 11;
inline constexpr std::size_t kMargin =
    64;  // Elements after the output of a kernel. They are compared too.

/// Rounds a count up, so that the bytes are a multiple of 16 in every dtype.
inline std::size_t round_up(std::size_t count) { return (count + 15) / 16 * 16; }

/// Elements that are copied between tensors and a bucket. All tensors are in one block of memory;
/// offsets are in elements and need no alignment.
struct Piece {
  std::size_t tensor, offset, count;  // elements
  bool is_gap = false;
};

/// Returns pieces with these element counts. Some are misaligned, and some are gaps.
inline std::vector<Piece> make_pieces(const std::vector<std::size_t>& counts,
                                      std::mt19937& random) {
  std::vector<Piece> pieces;
  std::size_t tensor = random() % 20;
  std::size_t offset = random() % 20;
  for (const std::size_t count : counts) {
    pieces.push_back({tensor, offset, count, random() % 5 == 0});
    tensor += count + random() % 3 * (random() % 20);
    offset += count + random() % 2 * (random() % 20);
  }
  return pieces;
}

/// The memory that a copy may write.
struct CopyMemory {
  std::vector<std::byte> tensors, bucket;
  std::uint32_t flag = 0;
};

inline std::vector<CopyChunk> chunks(const std::vector<Piece>& pieces, std::byte* tensors,
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

/// Runs `copy` on the host and by `on_device(copy, memory)`, and compares all bytes that they
/// write. `on_device` returns the memory that it has written.
template <typename OnDevice>
void expect_equal_copies(const std::vector<Piece>& pieces, BatchedCopy copy, bool looks,
                         OnDevice on_device) {
  const std::size_t last = std::max(pieces.back().tensor, pieces.back().offset);
  const std::size_t count = round_up(last + pieces.back().count + kMargin);
  CopyMemory host{.tensors = samples(copy.tensor_dtype, count, kKernelSeed),
                  .bucket = samples(copy.bucket_dtype, count, kKernelSeed + 1)};
  const CopyMemory written = on_device(copy, host);
  const auto host_chunks = chunks(pieces, host.tensors.data(), copy.tensor_dtype);
  copy.chunks = host_chunks;
  copy.bucket = host.bucket.data();
  copy.non_finite = looks ? &host.flag : nullptr;
  copy_batched_on_host(copy);
  ASSERT_TRUE(written.bucket == host.bucket);
  ASSERT_TRUE(written.tensors == host.tensors);
  ASSERT_EQ(written.flag, host.flag);
}

/// Calls `test(copy, looks)` for every pair of dtypes in both directions. Copies have no memory
/// yet.
template <typename Test>
void for_all_copies(Test test) {
  for (const DType tensor_dtype : kNumberDTypes) {
    for (const DType bucket_dtype : kNumberDTypes) {
      for (const double scale : {1.0, 1.0 / 3}) {
        for (const auto direction : {CopyDirection::kPack, CopyDirection::kUnpack}) {
          for (const bool looks : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << "tensors " << to_string(tensor_dtype) << ", bucket "
                         << to_string(bucket_dtype) << ", scale " << scale << ", unpacks "
                         << (direction == CopyDirection::kUnpack) << ", looks " << looks);
            test(BatchedCopy{.direction = direction,
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

/// Compares sums of sources with different alignments, in place and out of place. `upload(bytes)`
/// returns device memory, `sum(dtype, op, target, sources, count, scale)` sums on the device, and
/// `download(memory, bytes)` returns the contents of device memory afterwards.
template <typename Upload, typename Sum, typename Download>
void expect_equal_sums(DType dtype, ReduceOp op, std::size_t num_sources, std::size_t count,
                       std::size_t shift, double scale, Upload upload, Sum sum, Download download) {
  SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << to_string(op) << " of "
                                  << num_sources << " times " << count << ", shift " << shift
                                  << ", scale " << scale << ", seed " << kKernelSeed);
  const std::size_t bytes = size_of(dtype);
  std::vector<std::vector<std::byte>> host;
  std::vector<decltype(upload(host.front()))> on_device;
  std::vector<const void*> host_sources, device_sources;
  for (std::size_t s = 0; s < num_sources; ++s) {
    const std::size_t first = (shift + s * (shift != 0)) % 16;
    host.push_back(
        samples(dtype, round_up(first + count), kKernelSeed + static_cast<std::uint32_t>(s)));
    on_device.push_back(upload(host.back()));
    host_sources.push_back(host.back().data() + first * bytes);
    device_sources.push_back(on_device.back().data() + first * bytes);
  }
  for (const bool in_place : {false, true}) {
    auto target =
        in_place ? host[0] : samples(dtype, round_up(count + shift + kMargin), kKernelSeed + 999);
    auto apart = upload(target);
    const std::size_t at = shift * bytes;
    std::vector<const void*> sources = device_sources;
    if (in_place) sources[0] = apart.data() + at;
    sum(dtype, op, apart.data() + at, sources, count, scale);
    reference::reduce(dtype, op, target.data() + at, host_sources, count, scale);
    ASSERT_TRUE(download(apart, target.size()) == target) << "in place: " << in_place;
  }
}

}  // namespace kolo::test
