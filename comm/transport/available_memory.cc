#include "comm/transport/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace kolo {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// Names of the files that tell of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cached;  ///< In memory.stat: the part of the usage that the kernel gives back.
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

/// The number that a file consists of; nothing if there is none, as in "max".
std::optional<std::size_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// The number behind `key` in a file of lines "KEY NUMBER ...".
std::optional<std::size_t> number_of(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word, rest;
  for (std::size_t number = 0; file >> word >> number; std::getline(file, rest)) {
    if (word == key) return number;
  }
  return std::nullopt;
}

void take_least(AvailableMemory& least, std::size_t bytes, const std::string& limit) {
  if (bytes < least.bytes) least = {bytes, limit};
}

/// Takes the limits of a group and its parents into account. A container may see its own group as
/// the top of the hierarchy whatever the name says: groups that are not there are passed over.
void take_group(AvailableMemory& least, const std::filesystem::path& hierarchy,
                const std::filesystem::path& name, const GroupFiles& files) {
  for (std::filesystem::path group = name.relative_path();; group = group.parent_path()) {
    const std::filesystem::path folder = hierarchy / group;
    const auto limit = number_in(folder / files.limit);
    const auto usage = number_in(folder / files.usage);
    if (limit && usage) {
      const std::size_t cached = number_of(folder / "memory.stat", files.cached).value_or(0);
      const std::size_t used = *usage - std::min(*usage, cached);
      take_least(least, *limit - std::min(*limit, used),
                 "the memory limit of control group /" + group.string());
    }
    if (group.empty()) return;
  }
}

/// Whether "cpu,memory" names the controller of memory.
bool controls_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

AvailableMemory available_memory(const std::filesystem::path& root) {
  AvailableMemory least{kNoLimit, "this machine"};
  if (const auto kib = number_of(root / "proc/meminfo", "MemAvailable:")) {
    take_least(least, *kib * 1024, least.limit);
  }
  const std::filesystem::path mounted = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // "0::/a/b" in version 2, "4:cpu,memory:/a/b" in version 1.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers.empty()) take_group(least, mounted, group, kVersion2);
    if (controls_memory(controllers)) take_group(least, mounted / "memory", group, kVersion1);
  }
  return least;
}

}  // namespace kolo
