#include "comm/transport/peer_memory.h"

#include <sys/mman.h>
#include <sys/utsname.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

namespace kolo {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// Written memory of four huge pages, with this advice to the kernel.
class Memory {
 public:
  explicit Memory(int advice) {
    reserved_ = ::mmap(nullptr, 5 * kHugePageBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto address = reinterpret_cast<std::uintptr_t>(reserved_);
    data_ = reinterpret_cast<std::byte*>((address + kHugePageBytes - 1) / kHugePageBytes *
                                         kHugePageBytes);
    ::madvise(data_, 4 * kHugePageBytes, advice);
    std::memset(data_, 1, 4 * kHugePageBytes);
  }
  ~Memory() { ::munmap(reserved_, 5 * kHugePageBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<std::byte> all() const { return {data_, 4 * kHugePageBytes}; }

 private:
  void* reserved_;
  std::byte* data_;
};

bool linux_tells() {
  utsname system{};
  int major = 0, minor = 0;
  ::uname(&system);
  return std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 7));
}

/// Returns the answer of /proc/self/smaps, which is slow.
bool is_mapped_hugely(std::span<const std::byte> memory) {
  std::ifstream maps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto first = reinterpret_cast<std::uint64_t>(memory.data());
      is_it = begin <= first && first < end;
    } else if (is_it && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kilobytes) == 1) {
      return kilobytes * 1024 >= memory.size();
    }
  }
  return false;
}

TEST(PageMap, TellsSmallPages) {
  if (!linux_tells()) GTEST_SKIP() << "Linux before 6.7 does not tell of huge pages";
  PageMap map;
  const Memory memory(MADV_NOHUGEPAGE);
  EXPECT_FALSE(map.are_huge(memory.all()));
  EXPECT_FALSE(map.are_huge(memory.all().subspan(10, 100))) << "within a range that it knows";
  EXPECT_FALSE(map.are_huge(memory.all().last(5000)));
}

TEST(PageMap, TellsHugePages) {
  PageMap map;
  const Memory memory(MADV_HUGEPAGE);
  if (!is_mapped_hugely(memory.all())) GTEST_SKIP() << "the system gives no huge pages";
  EXPECT_TRUE(map.are_huge(memory.all().subspan(kHugePageBytes / 2, kHugePageBytes)));
  EXPECT_TRUE(map.are_huge(memory.all())) << "more than the range that it knows";
  EXPECT_TRUE(map.are_huge(memory.all().last(100)));
}

TEST(PageMap, TellsOfARangeThatIsPartlyInSmallPages) {
  if (!linux_tells()) GTEST_SKIP() << "Linux before 6.7 does not tell of huge pages";
  PageMap map;
  const Memory memory(MADV_HUGEPAGE);
  if (!is_mapped_hugely(memory.all())) GTEST_SKIP() << "the system gives no huge pages";
  // Returning a part of a huge page to the kernel splits the page.
  ::madvise(memory.all().data() + kHugePageBytes, kHugePageBytes / 2, MADV_DONTNEED);
  EXPECT_TRUE(map.are_huge(memory.all().first(kHugePageBytes)));
  EXPECT_FALSE(map.are_huge(memory.all().first(kHugePageBytes + 1)));
}

}  // namespace
}  // namespace kolo
