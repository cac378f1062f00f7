#include "topology/cache.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace kolo {
namespace {

/// AMD EPYC 7373X: 96 MiB for two cores, of two threads each.
constexpr std::size_t kMostBytesPerThread = std::size_t{24} << 20;

/// The number of processors in a list such as "0-3,8"; 0 if there is none.
std::size_t count_of(const std::string& list) {
  std::size_t count = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::istringstream numbers(range);
    std::size_t first = 0, last = 0;
    char dash = 0;
    if (!(numbers >> first)) return 0;
    if (!(numbers >> dash >> last)) last = first;
    count += last - std::min(first, last) + 1;
  }
  return count;
}

}  // namespace

// The kernel's view: the processor itself may tell a virtual machine of even more.
std::size_t last_level_cache_bytes(const std::filesystem::path& cpu) {
  std::size_t most = 0;
  for (int index = 0;; ++index) {
    const std::filesystem::path cache = cpu / "cache" / ("index" + std::to_string(index));
    std::size_t kib = 0;
    if (!(std::ifstream(cache / "size") >> kib)) return most;
    std::size_t bytes = kib * 1024;
    std::string threads;
    std::ifstream(cache / "shared_cpu_list") >> threads;
    const std::size_t count = count_of(threads);
    if (count > 0) bytes = std::min(bytes, count * kMostBytesPerThread);
    most = std::max(most, bytes);
  }
}

}  // namespace kolo
