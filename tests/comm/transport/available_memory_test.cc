#include "comm/transport/available_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>

#include "comm/base/error.h"
#include "comm/transport/arena.h"
#include "tests/support/temporary_directory.h"

namespace kolo {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A played file system with the kernel's files.
class PlayedSystem {
 public:
  PlayedSystem() { write("proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable:    1048576 kB\n"); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::filesystem::path& root() const { return directory_.path(); }

 private:
  const test::TemporaryDirectory directory_;
};

TEST(AvailableMemory, IsTheMachinesWithoutControlGroups) {
  const PlayedSystem system;
  const AvailableMemory available = available_memory(system.root());
  EXPECT_EQ(available.bytes, 1024 * kMiB);
  EXPECT_EQ(available.limit, "this machine");
}

TEST(AvailableMemory, IsUnlimitedWhereNothingIsKnown) {
  const test::TemporaryDirectory empty;
  EXPECT_EQ(available_memory(empty.path()).bytes, std::numeric_limits<std::size_t>::max());
}

TEST(AvailableMemory, OfVersionTwoIsWhatTheLimitLeavesAndCachedFilesDoNotCount) {
  const PlayedSystem system;
  system.write("proc/self/cgroup", "0::/job/task\n");
  system.write("sys/fs/cgroup/job/task/memory.max", "max\n");
  system.write("sys/fs/cgroup/job/task/memory.current", "1048576\n");
  system.write("sys/fs/cgroup/job/memory.max", std::to_string(100 * kMiB));
  system.write("sys/fs/cgroup/job/memory.current", std::to_string(70 * kMiB));
  system.write("sys/fs/cgroup/job/memory.stat",
               "anon 7\ninactive_file " + std::to_string(20 * kMiB) + "\nactive_file 5\n");
  const AvailableMemory available = available_memory(system.root());
  EXPECT_EQ(available.bytes, 50 * kMiB);
  EXPECT_THAT(available.limit, HasSubstr("control group /job"));
}

// A container sees its group at the top of the hierarchy, under another name.
TEST(AvailableMemory, OfVersionOneIsFoundAtTheTop) {
  const PlayedSystem system;
  system.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n");
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(64 * kMiB));
  system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(80 * kMiB));
  system.write("sys/fs/cgroup/memory/memory.stat",
               "total_inactive_file " + std::to_string(30 * kMiB));
  EXPECT_EQ(available_memory(system.root()).bytes, 14 * kMiB);
  system.write("sys/fs/cgroup/memory/memory.stat", "");
  EXPECT_EQ(available_memory(system.root()).bytes, 0U);
}

TEST(AvailableMemory, ThatAnArenaExceedsIsAnErrorThatNamesTheLimit) {
  const PlayedSystem system;
  system.write("proc/self/cgroup", "0::/\n");
  system.write("sys/fs/cgroup/memory.max", std::to_string(10 * kMiB));
  system.write("sys/fs/cgroup/memory.current", std::to_string(4 * kMiB));
  Arena arena = Arena::create(64 * kMiB);
  arena.commit(0, 5 * kMiB, {}, system.root());
  try {
    arena.commit(0, 32 * kMiB, {}, system.root());
    FAIL() << "took more than the limit leaves";
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kResources);
    EXPECT_THAT(e.error().what, HasSubstr("memory limit of control group"));
    EXPECT_THAT(e.error().what, HasSubstr(std::to_string(6 * kMiB)));
  }
}

// Two ranks, each of which fits a limit that both together exceed: nobody is ended by the kernel.
TEST(AvailableMemory, IsAskedForAgainWhileOtherRanksTakeIt) {
  const PlayedSystem system;
  system.write("proc/self/cgroup", "0::/\n");
  system.write("sys/fs/cgroup/memory.max", std::to_string(100 * kMiB));
  system.write("sys/fs/cgroup/memory.current", "0");
  Arena arena = Arena::create(64 * kMiB);
  const auto other_rank = [&] {
    system.write("sys/fs/cgroup/memory.current", std::to_string(60 * kMiB));
  };
  try {
    arena.commit(0, 64 * kMiB, other_rank, system.root());
    FAIL() << "took more than the limit leaves";
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kResources);
    EXPECT_THAT(e.error().what, HasSubstr("needs " + std::to_string(48 * kMiB) + " bytes"));
    EXPECT_THAT(e.error().what, HasSubstr("leaves " + std::to_string(40 * kMiB)));
  }
  arena.commit(0, 16 * kMiB, {}, system.root());  // It is there.
  arena.commit(16 * kMiB, 40 * kMiB, {}, system.root());
}

// Ranges side by side are one; a gap is none.
TEST(AvailableMemory, IsNotAskedForAgain) {
  const PlayedSystem system;
  system.write("proc/self/cgroup", "0::/\n");
  system.write("sys/fs/cgroup/memory.max", std::to_string(10 * kMiB));
  system.write("sys/fs/cgroup/memory.current", "0");
  Arena arena = Arena::create(64 * kMiB);
  for (const std::size_t place : std::initializer_list<std::size_t>{4, 0, 2, 1}) {
    arena.commit(place * kMiB, kMiB, {}, system.root());
  }
  system.write("sys/fs/cgroup/memory.current", std::to_string(10 * kMiB));
  arena.commit(0, 3 * kMiB, {}, system.root());
  arena.commit(kMiB / 2, 2 * kMiB, {}, system.root());
  arena.commit(4 * kMiB, kMiB, {}, system.root());
  EXPECT_THROW(arena.commit(0, 5 * kMiB, {}, system.root()), KoloError);
}

}  // namespace
}  // namespace kolo
