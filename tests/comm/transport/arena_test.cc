// Tests the location of an arena's pages, as the kernel reports it. On a machine with one NUMA
// node, this shows that `commit` allocates exactly the given range, before any access.

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "comm/base/error.h"
#include "comm/base/unique_handle.h"
#include "comm/transport/arena.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = std::size_t{8} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Returns the NUMA node of each page of the range, or a negative errno (-ENOENT: no page).
std::vector<int> nodes_of(std::byte* memory, std::size_t bytes) {
  std::vector<void*> pages;
  for (std::size_t at = 0; at < bytes; at += kPage) pages.push_back(memory + at);
  std::vector<int> nodes(pages.size());
  constexpr int kOwnProcess = 0;
  const long failed =
      ::syscall(SYS_move_pages, kOwnProcess, pages.size(), pages.data(), nullptr, nodes.data(), 0);
  if (failed != 0) nodes.clear();
  return nodes;
}

/// Returns the bytes of the mapping of `memory` that are mapped by huge pages of shared memory.
std::size_t huge_bytes(const std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream mappings("/proc/self/smaps");
  bool is_ours = false;
  for (std::string line; std::getline(mappings, line);) {
    std::uintptr_t begin = 0, end = 0;
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      is_ours = begin <= address && address < end;
    } else if (is_ours && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kib) == 1) {
      return kib * 1024;
    }
  }
  return 0;
}

/// Returns whether the kernel puts shared memory into huge pages, by itself or on request.
bool has_huge_pages() {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1
  const FileDescriptor fd(::memfd_create("probe", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), kBytes) != 0) return false;
  // Offset and address must be equally aligned, so additional address space is reserved.
  const std::size_t reserved_bytes = kBytes + kHugePage;
  void* const reserved =
      ::mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return false;
  std::size_t room = reserved_bytes;
  void* begin = reserved;
  std::align(kHugePage, kBytes, begin, room);
  void* memory = ::mmap(begin, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0);
  if (memory == MAP_FAILED) return false;
  ::madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kBytes);
  ::madvise(memory, kBytes, kCollapse);
  const bool found = huge_bytes(static_cast<std::byte*>(memory)) == kBytes;
  ::munmap(reserved, reserved_bytes);
  return found;
}

/// Pins the thread to its current core until the end of the test.
class OnOneCore {
 public:
  OnOneCore() {
    unsigned core = 0;
    is_kept_ = ::sched_getaffinity(0, sizeof former_, &former_) == 0 &&
               ::syscall(SYS_getcpu, &core, nullptr, nullptr) == 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    is_kept_ = is_kept_ && ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OnOneCore() { ::sched_setaffinity(0, sizeof former_, &former_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

  bool is_kept() const { return is_kept_; }
  int node() const {
    unsigned node = 0;
    ::syscall(SYS_getcpu, nullptr, &node, nullptr);
    return static_cast<int>(node);
  }

 private:
  cpu_set_t former_{};
  bool is_kept_ = false;
};

class ArenaPlacement : public testing::Test {
 protected:
  void SetUp() override {
    if (nodes_of(arena_.data(), kPage).empty()) {
      GTEST_SKIP() << "the kernel does not tell where pages are: " << std::strerror(errno);
    }
    ASSERT_TRUE(core_.is_kept());
  }

  OnOneCore core_;
  Arena arena_ = Arena::create(kBytes);
};

TEST_F(ArenaPlacement, WhatIsCommittedLiesOnTheNodeOfTheOwner) {
  constexpr std::size_t kOffset = 5 * kPage, kCommitted = 700 * kPage;
  arena_.commit(kOffset, kCommitted);
  for (const int node : nodes_of(arena_.data() + kOffset, kCommitted)) {
    ASSERT_EQ(node, core_.node());
  }
}

TEST_F(ArenaPlacement, APeerFindsThePagesWhereTheOwnerPutThem) {
  arena_.commit(0, kBytes);
  const Arena peer = Arena::adopt(FileDescriptor(::dup(arena_.fd())), kBytes);
  for (std::size_t at = 0; at < kBytes; at += kPage) {
    // A page becomes part of this mapping when it is read.
    static_cast<void>(*const_cast<volatile std::byte*>(peer.data() + at));
  }
  EXPECT_EQ(nodes_of(peer.data(), kBytes), nodes_of(arena_.data(), kBytes));
}

TEST(ArenaPages, AreHugeWhereTheKernelHasHugePages) {
  if (!has_huge_pages()) GTEST_SKIP() << "the kernel gives no huge pages of shared memory";
  Arena arena = Arena::create(kBytes);
  arena.commit(0, kBytes);
  // Other programs may have taken memory that was free a moment ago, but hardly all of it.
  EXPECT_GE(huge_bytes(arena.data()), kHugePage);
}

TEST(ArenaPages, ComeWithPauses) {
  constexpr std::size_t kMuch = std::size_t{20} << 20;
  Arena arena = Arena::create(kMuch);
  int pauses = 0;
  arena.commit(0, kMuch, [&] { ++pauses; });
  EXPECT_EQ(pauses, 2) << "one for each 16 MiB, and the rest";
  arena.commit(0, kMuch, [&] { ++pauses; });
  EXPECT_EQ(pauses, 2) << "it is there already";
}

TEST_F(ArenaPlacement, WhatIsNotCommittedTakesNoMemory) {
  for (const int node : nodes_of(arena_.data(), kBytes)) ASSERT_LT(node, 0);
  arena_.commit(0, kPage);
  EXPECT_EQ(nodes_of(arena_.data(), kPage).front(), core_.node());
  EXPECT_LT(nodes_of(arena_.data() + kBytes - kPage, kPage).front(), 0);
}

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A simulated file system with the files of the kernel.
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

// In a container, the process's control group is the root of the hierarchy and has another name.
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
  const Error error = test::thrown_error([&] { arena.commit(0, 32 * kMiB, {}, system.root()); });
  EXPECT_EQ(error.code, ErrorCode::kResources);
  EXPECT_THAT(error.what, HasSubstr("memory limit of control group"));
  EXPECT_THAT(error.what, HasSubstr(std::to_string(6 * kMiB)));
}

// Each of two ranks fits into the limit, but both together exceed it. One gets an error, and the
// kernel kills no process.
TEST(AvailableMemory, IsAskedForAgainWhileOtherRanksTakeIt) {
  const PlayedSystem system;
  system.write("proc/self/cgroup", "0::/\n");
  system.write("sys/fs/cgroup/memory.max", std::to_string(100 * kMiB));
  system.write("sys/fs/cgroup/memory.current", "0");
  Arena arena = Arena::create(64 * kMiB);
  const auto other_rank = [&] {
    system.write("sys/fs/cgroup/memory.current", std::to_string(60 * kMiB));
  };
  const Error error =
      test::thrown_error([&] { arena.commit(0, 64 * kMiB, other_rank, system.root()); });
  EXPECT_EQ(error.code, ErrorCode::kResources);
  EXPECT_THAT(error.what, HasSubstr("needs " + std::to_string(48 * kMiB) + " bytes"));
  EXPECT_THAT(error.what, HasSubstr("leaves " + std::to_string(40 * kMiB)));
  arena.commit(0, 16 * kMiB, {}, system.root());  // this range is already committed
  arena.commit(16 * kMiB, 40 * kMiB, {}, system.root());
}

// Adjacent ranges are merged. A gap between ranges is not included.
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
