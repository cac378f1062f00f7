#include "topology/cache.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace kolo {

// The kernel's view; in a virtual machine the processor itself may tell of caches of the host.
std::size_t last_level_cache_bytes() {
  std::size_t most = 0;
  for (int index = 0;; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::size_t kib = 0;
    if (!(file >> kib)) return most;
    most = std::max(most, kib * 1024);
  }
}

}  // namespace kolo
