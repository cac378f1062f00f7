#include "topology/cache.h"

#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace kolo {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

class Cache : public testing::Test {
 protected:
  /// As the kernel describes cache number `index`.
  void add(int index, const std::string& size, const std::string& threads = "") {
    const std::string folder = "cache/index" + std::to_string(index);
    directory_.write(folder + "/size", size + "\n");
    if (!threads.empty()) directory_.write(folder + "/shared_cpu_list", threads + "\n");
  }
  std::size_t bytes() const { return last_level_cache_bytes(directory_.path()); }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(Cache, IsTheLargest) {
  EXPECT_EQ(bytes(), 0u);
  add(0, "48K", "0");
  add(1, "2048K", "0");
  EXPECT_EQ(bytes(), 2 * kMebibyte);
  add(2, "32768K", "0-7");
  EXPECT_EQ(bytes(), 32 * kMebibyte);
}

TEST_F(Cache, OfAWholeHostCountsByTheThreadsThatAreHere) {
  add(0, "491520K", "0-1");
  EXPECT_EQ(bytes(), 48 * kMebibyte);
  add(0, "491520K", "0-7,64-71");
  EXPECT_EQ(bytes(), 384 * kMebibyte);
  add(0, "491520K", "0,2,4");
  EXPECT_EQ(bytes(), 72 * kMebibyte);
}

TEST_F(Cache, CountsWholeIfNobodySaysWhoSharesIt) {
  add(0, "491520K");
  EXPECT_EQ(bytes(), 480 * kMebibyte);
  add(0, "491520K", "none");
  EXPECT_EQ(bytes(), 480 * kMebibyte);
}

}  // namespace
}  // namespace kolo
