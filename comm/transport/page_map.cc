#include "comm/transport/page_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cstdint>

namespace kolo {
namespace {

// PAGEMAP_SCAN of Linux 6.7, which older headers do not name. Source: Linux,
// include/uapi/linux/fs.h.
struct PageRegion {
  std::uint64_t start = 0, end = 0, categories = 0;
};
struct PageScan {
  std::uint64_t size = sizeof(PageScan);
  std::uint64_t flags = 0;
  std::uint64_t start = 0, end = 0;
  std::uint64_t walk_end = 0;
  std::uint64_t regions = 0;  // an address
  std::uint64_t region_count = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t category_inverted = 0, category_mask = 0, category_anyof_mask = 0;
  std::uint64_t return_mask = 0;
};
constexpr unsigned long kPageMapScan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t kIsHuge = 1U << 6;

constexpr std::uint64_t kSmallPage = 4096;
/// As far as it is looked ahead: neighbours are asked for next.
constexpr std::uint64_t kLookAhead = std::uint64_t{64} << 20;

}  // namespace

PageMap::PageMap() : file_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

bool PageMap::are_huge(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uint64_t>(memory.data());
  const Range range{.begin = begin / kSmallPage * kSmallPage,
                    .end = (begin + memory.size() + kSmallPage - 1) / kSmallPage * kSmallPage};
  if (huge_.holds(range)) return true;
  if (small_.holds(range)) return false;
  // Huge pages are looked through in no time, small ones are not.
  if (huge_part(range).holds(range)) {
    huge_ = huge_part({range.begin, range.begin + kLookAhead});
    return true;
  }
  small_ = range;
  return false;
}

PageMap::Range PageMap::huge_part(const Range& range) const {
  PageRegion first;
  PageScan scan{.start = range.begin,
                .end = range.end,
                .regions = reinterpret_cast<std::uint64_t>(&first),
                .region_count = 1,
                .category_mask = kIsHuge,
                .return_mask = kIsHuge};
  const int found = file_ ? ::ioctl(file_.get(), kPageMapScan, &scan) : -1;
  if (found < 0) return range;
  return found > 0 && first.start == range.begin ? Range{first.start, first.end} : Range{};
}

}  // namespace kolo
