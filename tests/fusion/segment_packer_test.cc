#include "fusion/segment_packer.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace kolo {
namespace {

/// Tensors of 3 and 5 elements at 2 and 6 of a bucket: gaps before, between and after.
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

// Long enough for stores past the cache, between tensors that are not.
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
