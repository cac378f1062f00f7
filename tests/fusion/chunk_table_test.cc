#include "fusion/chunk_table.h"

#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/base/half.h"
#include "comm/device/kernels/kernels.h"

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::size_t> offsets(const ChunkTable::Run& run) {
  std::vector<std::size_t> result;
  for (const CopyChunk& chunk : run.chunks) result.push_back(chunk.offset);
  return result;
}

// This is the example in the header.
TEST(ChunkTableTest, CutsTensorsAndGapsIntoARunPerDtype) {
  std::vector<float> a(2);
  std::vector<Float16> b(4), c(1);
  const std::vector<Segment> segments = {
      {.data = a.data(), .dtype = DType::kFloat32, .count = 2, .offset = 0},
      {.data = b.data(), .dtype = DType::kFloat16, .count = 4, .offset = 2},
      {.data = c.data(), .dtype = DType::kFloat16, .count = 1, .offset = 7}};
  const std::vector<std::size_t> cuts = {4, 8, 0};
  const ChunkTable table(segments, DType::kFloat32, 8, cuts);
  ASSERT_EQ(table.runs().size(), 2u);
  EXPECT_THAT(offsets(table.runs()[0]), ElementsAre(0, 6));
  EXPECT_EQ(table.runs()[0].chunks[1].tensor, nullptr);
  EXPECT_THAT(offsets(table.runs()[1]), ElementsAre(2, 4, 7));
  EXPECT_EQ(table.runs()[1].chunks[1].tensor, &b[2]);

  const auto right = table.part(1, 4, 4);
  EXPECT_EQ(right.begin, 1u);
  EXPECT_EQ(right.end, 3u);
  EXPECT_THROW(table.part(1, 3, 4), UsageError);
  EXPECT_THROW(table.part(1, 4, 3), UsageError);
}

TEST(ChunkTableTest, PiecesAreNoLargerThanAChunkInTheWiderDtype) {
  constexpr std::size_t kMost = kCopyChunkBytes / sizeof(double);
  std::vector<double> tensor(3 * kMost + 1);
  const std::vector<Segment> segments = {
      {.data = tensor.data(), .dtype = DType::kFloat64, .count = tensor.size(), .offset = 0}};
  const std::vector<std::size_t> cuts = {kMost + 5};
  const ChunkTable table(segments, DType::kBFloat16, tensor.size(), cuts);
  EXPECT_THAT(offsets(table.runs()[0]), ElementsAre(0, kMost, kMost + 5, 2 * kMost + 5));
}

TEST(ChunkTableTest, BucketWithoutTensorsIsOneGap) {
  const ChunkTable table({}, DType::kFloat32, 10, {});
  ASSERT_EQ(table.runs()[0].chunks.size(), 1u);
  EXPECT_EQ(table.runs()[0].chunks[0].tensor, nullptr);
  EXPECT_EQ(table.runs()[0].chunks[0].count, 10u);
  EXPECT_THAT(ChunkTable({}, DType::kFloat32, 0, {}).runs()[0].chunks, IsEmpty());
}

TEST(ChunkTableTest, RebindMovesEveryPieceOfASegmentAndNoOther) {
  constexpr std::size_t kCount = kCopyChunkBytes / sizeof(float) + 7;
  std::vector<float> a(kCount), b(kCount), c(kCount);
  const std::vector<Segment> segments = {
      {.data = a.data(), .dtype = DType::kFloat32, .count = kCount, .offset = 0},
      {.data = nullptr, .dtype = DType::kFloat32, .count = kCount, .offset = kCount}};
  ChunkTable table(segments, DType::kFloat32, 2 * kCount, {});
  const auto tensors = [&] {
    std::vector<const void*> result;
    for (const CopyChunk& chunk : table.runs()[0].chunks) result.push_back(chunk.tensor);
    return result;
  };
  constexpr std::size_t kSecond = kCopyChunkBytes / sizeof(float);
  EXPECT_THAT(tensors(), ElementsAre(&a[0], &a[kSecond], nullptr, nullptr));
  const auto [run, part] = table.rebind(1, c.data());
  EXPECT_EQ(run, 0u);
  EXPECT_EQ(part.begin, 2u);
  EXPECT_EQ(part.end, 4u);
  EXPECT_THAT(tensors(), ElementsAre(&a[0], &a[kSecond], &c[0], &c[kSecond]));
}

TEST(ChunkTableTest, BadSegmentsAndCutsAreUsageErrors) {
  const std::vector<Segment> overlapping = {{.count = 4, .offset = 0}, {.count = 4, .offset = 3}};
  EXPECT_THROW(ChunkTable(overlapping, DType::kFloat32, 8, {}), UsageError);
  const std::vector<Segment> beyond = {{.count = 4, .offset = 6}};
  EXPECT_THROW(ChunkTable(beyond, DType::kFloat32, 8, {}), UsageError);
  const std::vector<std::size_t> cuts = {9};
  EXPECT_THROW(ChunkTable({}, DType::kFloat32, 8, cuts), UsageError);
}

// In random buckets, the parts of any range between two cuts write the same bytes as `pack`.
TEST(ChunkTableTest, PartsOfAnyRangePackWhatPackPacks) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return std::size_t{random()} % limit; };
    std::vector<float> values(1 << 16);
    std::iota(values.begin(), values.end(), 1.0f);
    constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kInt32};
    std::vector<Segment> segments;
    std::size_t end = 0;
    for (std::size_t i = below(8); i > 0; --i) {
      end += below(40);
      const std::size_t count = below(2) ? below(100) : below(20000);
      segments.push_back(
          {.data = &values[below(100)], .dtype = kDTypes[below(3)], .count = count, .offset = end});
      end += count;
    }
    end += below(10000);
    std::vector<std::size_t> cuts = {0, end};
    for (std::size_t i = below(6); i > 0; --i) cuts.push_back(below(end + 1));
    const ChunkTable table(segments, DType::kFloat32, end, cuts);

    std::vector<float> expected(end), bucket(end, -1.0f);
    pack(segments, {expected.data(), end, DType::kFloat32}, 0, 0.5);
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      for (std::size_t r = 0; r < table.runs().size(); ++r) {
        const auto [first, last] = table.part(r, cuts[i - 1], cuts[i] - cuts[i - 1]);
        copy_batched_on_host(
            {.chunks = std::span(table.runs()[r].chunks).subspan(first, last - first),
             .bucket = bucket.data(),
             .tensor_dtype = table.runs()[r].tensor_dtype,
             .bucket_dtype = DType::kFloat32,
             .scale = 0.5});
      }
      const auto written = static_cast<std::ptrdiff_t>(cuts[i]);
      ASSERT_TRUE(std::equal(bucket.begin(), bucket.begin() + written, expected.begin()));
      ASSERT_THAT(std::vector<float>(bucket.begin() + written, bucket.end()), testing::Each(-1.0f));
    }
  }
}

}  // namespace
}  // namespace kolo
