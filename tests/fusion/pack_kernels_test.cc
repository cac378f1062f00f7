#include "fusion/pack_kernels.h"

#include <array>
#include <numeric>

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/base/half.h"

namespace kolo {
namespace {

using testing::Each;
using testing::ElementsAre;

// A bucket of 16 elements with tensors at [0, 5), [8, 8), [8, 11) and [12, 16):
//
//     element  0 1 2 3 4 5 6 7 8 9 a b c d e f
//     tensor   a a a a a . . . b b b . c c c c
class PackTest : public testing::Test {
 protected:
  static constexpr std::size_t kCount = 16;
  std::vector<float> a = {1, 2, 3, 4, 5};
  std::vector<double> b = {10, 20, 30};
  std::vector<Float16> c = {to_float16(0.5f), to_float16(1.5f), to_float16(2.5f), to_float16(3.5f)};
  std::vector<Segment> segments = {
      {.data = a.data(), .dtype = DType::kFloat32, .count = 5, .offset = 0},
      {.data = nullptr, .dtype = DType::kFloat32, .count = 0, .offset = 8},
      {.data = b.data(), .dtype = DType::kFloat64, .count = 3, .offset = 8},
      {.data = c.data(), .dtype = DType::kFloat16, .count = 4, .offset = 12}};
  const std::vector<float> packed = {1, 2, 3, 4, 5, 0, 0, 0, 10, 20, 30, 0, 0.5, 1.5, 2.5, 3.5};
};

BufferView view(std::vector<float>& values) {
  return {values.data(), values.size(), DType::kFloat32};
}

TEST_F(PackTest, EveryRangeHoldsItsPartOfTheBucket) {
  for (std::size_t begin = 0; begin <= kCount; ++begin) {
    for (std::size_t end = begin; end <= kCount; ++end) {
      std::vector<float> range(end - begin, -1.0f);
      pack(segments, view(range), begin, 1.0);
      const auto at = [&](std::size_t i) {
        return packed.begin() + static_cast<std::ptrdiff_t>(i);
      };
      ASSERT_EQ(range, std::vector<float>(at(begin), at(end))) << begin << " to " << end;
    }
  }
}

TEST_F(PackTest, UnpackingRangesInAnyPartitionRestoresTheTensors) {
  const auto a_before = a;
  const auto b_before = b;
  const auto c_before = c;
  for (std::size_t part = 1; part <= kCount; ++part) {
    std::vector<float> bucket = packed;
    a.assign(a.size(), -1.0f);
    b.assign(b.size(), -1.0);
    c.assign(c.size(), Float16{});
    for (std::size_t begin = 0; begin < kCount; begin += part) {
      const std::size_t count = std::min(part, kCount - begin);
      unpack(segments, {&bucket[begin], count, DType::kFloat32}, begin, 1.0);
    }
    EXPECT_EQ(a, a_before) << part;
    EXPECT_EQ(b, b_before) << part;
    EXPECT_EQ(c, c_before) << part;
    EXPECT_EQ(bucket, packed) << "the bucket is only read";
  }
}

TEST_F(PackTest, UnpackLeavesElementsOutsideTheRangeAlone) {
  std::vector<float> range(7, 100.0f);
  unpack(segments, view(range), 3, 1.0);
  EXPECT_THAT(a, ElementsAre(1, 2, 3, 100, 100));
  EXPECT_THAT(b, ElementsAre(100, 100, 30));
  EXPECT_EQ(to_float(c[0]), 0.5f);
}

TEST_F(PackTest, WhatStaysIsPackedButNotWritten) {
  static const float kReadOnly[] = {1, 2, 3, 4, 5};
  segments[0].data = const_cast<float*>(kReadOnly);
  segments[0].input = kReadOnly;
  std::vector<float> bucket(kCount);
  pack(segments, view(bucket), 0, 1.0);
  EXPECT_EQ(bucket, packed);
  std::vector<float> others(kCount, 7.0f);
  unpack(segments, view(others), 0, 1.0);  // a write to it ends the process
  EXPECT_THAT(b, Each(7.0));
}

TEST_F(PackTest, ScaleIsAppliedInTheSamePass) {
  std::vector<float> bucket(kCount);
  pack(segments, view(bucket), 0, 0.5);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(bucket[i], packed[i] / 2);
  unpack(segments, view(bucket), 0, 4.0);
  EXPECT_THAT(a, ElementsAre(2, 4, 6, 8, 10));
  EXPECT_EQ(to_float(c[3]), 7.0f);
}

TEST_F(PackTest, SixteenBitBucketRoundsOnce) {
  a[0] = 1.0f + 0x1p-8f;  // a tie of bfloat16, rounded to even
  a[1] = 1.0f + 0x1p-8f + 0x1p-20f;
  std::vector<BFloat16> bucket(kCount, BFloat16{0xffff});
  pack(segments, {bucket.data(), kCount, DType::kBFloat16}, 0, 1.0);
  EXPECT_EQ(to_float(bucket[0]), 1.0f);
  EXPECT_EQ(to_float(bucket[1]), 1.0f + 0x1p-7f);
  EXPECT_EQ(bucket[5], BFloat16{});
  EXPECT_EQ(bucket[11], BFloat16{});
}

TEST_F(PackTest, BucketWithoutSegmentsIsAllPadding) {
  std::vector<float> bucket(kCount, -1.0f);
  pack({}, view(bucket), 0, 1.0);
  EXPECT_THAT(bucket, Each(0.0f));
}

TEST_F(PackTest, OverlappingOrUnsortedSegmentsAreAUsageError) {
  std::vector<float> bucket(kCount);
  segments[2].offset = 4;
  segments[1].offset = 5;
  EXPECT_THROW(pack(segments, view(bucket), 0, 1.0), UsageError);
  EXPECT_THROW(unpack(segments, view(bucket), 0, 1.0), UsageError);
}

/// Tensors of 3 and 5 elements at offsets 2 and 6 of a bucket. There are gaps before, between and
/// after.
class SegmentPieces : public testing::Test {
 protected:
  std::vector<float> a_ = std::vector<float>(3);
  std::vector<float> b_ = std::vector<float>(5);
  SegmentPacker packer_{
      DType::kFloat32,
      {{.data = a_.data(), .count = 3, .offset = 2}, {.data = b_.data(), .count = 5, .offset = 6}}};
};

TEST_F(SegmentPieces, CoverEveryElementWhereverTheyBegin) {
  for (std::size_t offset = 0; offset < 14; ++offset) {
    for (std::size_t count = 1; count < 16; ++count) {
      for (std::size_t at = offset; at < offset + count;) {
        const Packer::Piece piece = packer_.piece(at, offset + count - at);
        ASSERT_GT(piece.count, 0u);
        ASSERT_LE(at + piece.count, offset + count);
        for (std::size_t i = at; i < at + piece.count; ++i) {
          const float* expected = i >= 2 && i < 5    ? &a_[i - 2]
                                  : i >= 6 && i < 11 ? &b_[i - 6]
                                                     : nullptr;
          const float* const actual =
              piece.data ? reinterpret_cast<const float*>(piece.data) + (i - at) : nullptr;
          ASSERT_EQ(actual, expected) << "element " << i;
        }
        at += piece.count;
      }
    }
  }
}

TEST_F(SegmentPieces, AreAsLongAsTheTensors) {
  EXPECT_EQ(packer_.piece(0, 100).count, 2u);
  EXPECT_EQ(packer_.piece(2, 100).count, 3u);
  EXPECT_EQ(packer_.piece(3, 100).count, 2u);
  EXPECT_EQ(packer_.piece(5, 100).count, 1u);
  EXPECT_EQ(packer_.piece(6, 100).count, 5u);
  EXPECT_EQ(packer_.piece(11, 100).count, 100u);
}

TEST_F(SegmentPieces, FollowARebind) {
  std::vector<float> other(5);
  packer_.rebind(1, other.data(), nullptr);
  EXPECT_EQ(packer_.piece(7, 1).data, reinterpret_cast<std::byte*>(&other[1]));
  EXPECT_EQ(packer_.piece(7, 1).input, packer_.piece(7, 1).data);
}

TEST_F(SegmentPieces, OutOfPlaceAreReadElsewhere) {
  const std::vector<float> input = {1, 2, 3, 4, 5};
  packer_.rebind(1, b_.data(), input.data());
  const Packer::Piece piece = packer_.piece(8, 100);
  EXPECT_EQ(piece.data, reinterpret_cast<std::byte*>(&b_[2]));
  EXPECT_EQ(piece.input, reinterpret_cast<const std::byte*>(&input[2]));
  std::vector<float> bucket(9);
  packer_.pack(3, 9, bucket.data(), Stores::kCached);
  EXPECT_EQ(bucket, (std::vector<float>{0, 0, 0, 1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(b_, std::vector<float>(5));
}

// One tensor is long enough for stores past the cache; its neighbours are not.
TEST(SegmentPacker, PacksTheSameBitsPastTheCache) {
  constexpr std::size_t kLong = 3'000;
  std::vector<float> tensor(kLong);
  std::iota(tensor.begin(), tensor.end(), 1.0F);
  std::array<float, 3> few = {7, 8, 9};
  for (const double scale : {1.0, 0.5}) {
    SegmentPacker packer(DType::kFloat32, {{.data = few.data(), .count = few.size(), .offset = 1},
                                           {.data = tensor.data(), .count = kLong, .offset = 5}});
    packer.set_scale(scale);
    std::vector<float> cached(kLong + 6, -1), streamed(kLong + 6, -2);
    packer.pack(0, cached.size(), cached.data(), Stores::kCached);
    packer.pack(0, streamed.size(), streamed.data(), Stores::kStreaming);
    EXPECT_EQ(streamed, cached);
    EXPECT_EQ(streamed[5 + kLong - 1], static_cast<float>(scale) * tensor.back());
  }
}

TEST_F(SegmentPieces, SkipAnEmptyTensor) {
  SegmentPacker packer(DType::kFloat32, {{.data = a_.data(), .count = 0, .offset = 0},
                                         {.data = b_.data(), .count = 5, .offset = 0}});
  EXPECT_EQ(packer.piece(0, 9).data, reinterpret_cast<std::byte*>(b_.data()));
}

}  // namespace
}  // namespace kolo
