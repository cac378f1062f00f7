#include "fusion/arena.h"

#include <gmock/gmock.h>

#include <random>

#include "comm/base/error.h"

namespace kolo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kPage = 4096;

std::optional<std::size_t> try_allocate(ArenaAllocator& arena, std::size_t bytes) {
  try {
    return arena.allocate(bytes);
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kResources);
    return std::nullopt;
  }
}

std::size_t pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPage - 1) / kPage);
}

/// Returns the length of the longest run of free pages, in bytes.
std::size_t largest_hole(const std::map<std::size_t, std::size_t>& used, std::size_t capacity) {
  std::size_t at = 0, largest = 0;
  for (const auto& [offset, bytes] : used) {
    largest = std::max(largest, offset - at);
    at = offset + pages(bytes) * kPage;
  }
  return std::max(largest, capacity - at);
}

// Two arenas get the same calls, like the arenas of two ranks.
TEST(ArenaAllocator, NeverOverlapsAndIsTheSameOnEveryRank) {
  constexpr std::size_t kCapacity = 64 * kPage;
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ArenaAllocator arena(kCapacity), other(kCapacity);
    std::map<std::size_t, std::size_t> used;  // offset -> requested bytes
    int refusals = 0;
    for (int step = 0; step < 2000; ++step) {
      if (!used.empty() && random() % 5 < 2) {
        auto it = used.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(random() % used.size()));
        arena.release(it->first);
        other.release(it->first);
        used.erase(it);
        continue;
      }
      const std::size_t bytes = random() % (8 * kPage);
      const auto offset = try_allocate(arena, bytes);
      ASSERT_EQ(try_allocate(other, bytes), offset);
      // An allocation is refused if and only if no hole is large enough.
      ASSERT_EQ(offset.has_value(), largest_hole(used, kCapacity) >= pages(bytes) * kPage);
      if (!offset) {
        ++refusals;
        continue;
      }
      ASSERT_EQ(*offset % kPage, 0u);
      ASSERT_LE(*offset + bytes, kCapacity);
      const auto next = used.lower_bound(*offset);
      if (next != used.end()) {
        ASSERT_LE(*offset + bytes, next->first);
      }
      if (next != used.begin()) {
        const auto& [before, size] = *std::prev(next);
        ASSERT_LE(before + size, *offset);
      }
      ASSERT_TRUE(used.emplace(*offset, bytes).second);
    }
    EXPECT_GT(refusals, 0);
  }
}

TEST(ArenaAllocator, TakesTheFirstHoleThatFits) {
  ArenaAllocator arena(8 * kPage);
  EXPECT_EQ(arena.allocate(2 * kPage), 0u);
  EXPECT_EQ(arena.allocate(1), 2 * kPage);
  EXPECT_EQ(arena.allocate(0), 3 * kPage);  // an empty range gets an offset too
  arena.release(0);
  EXPECT_EQ(arena.allocate(3 * kPage), 4 * kPage);
  EXPECT_EQ(arena.allocate(kPage), 0u);
  EXPECT_EQ(arena.allocate(kPage), kPage);
}

TEST(ArenaAllocator, SaysWhatWasAskedWhatIsFreeAndWhatToRaise) {
  ArenaAllocator arena(4 * kPage);
  arena.allocate(3 * kPage);
  for (std::size_t bytes : {2 * kPage, std::numeric_limits<std::size_t>::max()}) {
    try {
      arena.allocate(bytes);
      ADD_FAILURE() << bytes;
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kResources);
      EXPECT_THAT(e.error().what, AllOf(HasSubstr("bucket of " + std::to_string(bytes) + " bytes"),
                                        HasSubstr("4096 of 16384 bytes are free"),
                                        HasSubstr("arena_bytes"), HasSubstr("KOLO_ARENA_BYTES")));
    }
  }
  EXPECT_EQ(arena.allocate(kPage), 3 * kPage);
}

TEST(ArenaAllocator, RefusesToReleaseWhatWasNotAllocated) {
  ArenaAllocator arena(4 * kPage);
  const std::size_t offset = arena.allocate(1);
  EXPECT_THROW(arena.release(offset + kPage), KoloError);
  arena.release(offset);
  EXPECT_THROW(arena.release(offset), KoloError);
}

}  // namespace
}  // namespace kolo
