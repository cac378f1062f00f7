#include "comm/transport/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "comm/base/error.h"

namespace kolo {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// The file names of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cached;  ///< Key in memory.stat of the cache that the kernel can reclaim.
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

/// Returns the number in a file of one number; nothing for another word, such as "max".
std::optional<std::size_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// Returns the number after `key` in a file of lines "KEY NUMBER ...".
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

/// Applies the limits of a group and its parents. Groups without files are skipped: a container may
/// see its own group as the root of the hierarchy, whatever the group's name.
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

/// Whether a list such as "cpu,memory" contains the memory controller.
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
  // Lines are "0::/a/b" in version 2 and "4:cpu,memory:/a/b" in version 1.
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

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// MADV_POPULATE_WRITE of Linux 5.14; older headers do not define it and older kernels reject it.
constexpr int kPopulateWrite = 23;
/// MADV_COLLAPSE of Linux 6.1; older headers do not define it and older kernels reject it.
constexpr int kCollapse = 25;

/// Size of one part of a commit. The kernel clears a few GB/s, or less than 1 GB/s if a virtual
/// machine has to obtain its memory first. The check of available memory takes less than a
/// hundredth of a part's time.
constexpr std::size_t kPartBytes = std::size_t{16} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void throw_error(ErrorCode code, std::string what) {
  throw KoloError(Error{.code = code, .verb = {}, .bucket = {}, .what = std::move(what)});
}

[[noreturn]] void throw_resources(const std::string& what) {
  throw_error(ErrorCode::kResources, what + ": " + std::strerror(errno));
}

/// Returns the number of bytes in the range that already have pages.
std::size_t allocated_bytes(int fd, std::size_t offset, std::size_t bytes) {
  const auto end = static_cast<off_t>(offset + bytes);
  std::size_t sum = 0;
  for (auto at = static_cast<off_t>(offset); at < end;) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0 || data >= end) break;
    at = std::min(::lseek(fd, data, SEEK_HOLE), end);
    if (at <= data) break;
    sum += static_cast<std::size_t>(at - data);
  }
  return sum;
}

}  // namespace

Arena Arena::create(std::size_t bytes) {
  FileDescriptor fd(::memfd_create("kolo-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_resources("cannot make an arena");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    throw_resources("cannot make an arena of " + std::to_string(bytes) + " bytes");
  }
  return Arena(std::move(fd), bytes);
}

Arena Arena::adopt(FileDescriptor fd, std::size_t bytes) {
  struct stat status {};
  const bool sealed = (::fcntl(fd.get(), F_GET_SEALS) & kSeals) == kSeals;
  if (!sealed || ::fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes)) {
    throw_error(ErrorCode::kAuth, "a peer offered memory that is not a sealed arena of " +
                                      std::to_string(bytes) + " bytes");
  }
  return Arena(std::move(fd), bytes);
}

Arena::Arena(FileDescriptor fd, std::size_t bytes) : fd_(std::move(fd)) {
  // Huge pages need equal alignment of file offset and address. Therefore more address space is
  // reserved, and the aligned part is kept.
  void* reserved = ::mmap(nullptr, bytes + kHugePage, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* memory = MAP_FAILED;
  if (reserved != MAP_FAILED) {
    auto* begin = static_cast<std::byte*>(reserved);
    const std::size_t before =
        (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    memory = ::mmap(begin + before, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_.get(), 0);
    if (memory == MAP_FAILED) {
      ::munmap(begin, bytes + kHugePage);
    } else {
      if (before > 0) ::munmap(begin, before);
      ::munmap(begin + before + bytes, kHugePage - before);
    }
  }
  if (memory == MAP_FAILED) {
    throw_resources("cannot map an arena of " + std::to_string(bytes) +
                    " bytes; see ulimit -v and the arena size");
  }
  ::madvise(memory, bytes, MADV_DONTFORK);
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // kernels without huge pages refuse this
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, {})),
      committed_(std::move(other.committed_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(memory_, other.memory_);
  std::swap(committed_, other.committed_);
  return *this;
}

Arena::~Arena() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

bool Arena::populate(std::size_t offset, std::size_t bytes) {
  const std::size_t begin = offset / kPage * kPage;
  const std::size_t end = std::min((offset + bytes + kPage - 1) / kPage * kPage, size());
  const auto write = [this](std::size_t from, std::size_t to) {
    int failed = 0;
    do {
      failed = ::madvise(data() + from, to - from, kPopulateWrite);
    } while (failed != 0 && (errno == EINTR || errno == EAGAIN));
    return failed == 0;
  };
  const std::size_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::size_t last = end / kHugePage * kHugePage;
  // The kernel makes a huge page from a single small page by clearing the rest; from 512 small
  // pages it would have to copy them.
  for (std::size_t page = first; page < last; page += kHugePage) {
    if (!write(page, page + kPage)) return false;
  }
  if (first < last) ::madvise(data() + first, last - first, kCollapse);  // may fail
  return write(begin, end);
}

void Arena::check_available(std::size_t offset, std::size_t bytes,
                            const std::filesystem::path& root) const {
  const AvailableMemory available = available_memory(root);
  if (bytes <= available.bytes) return;
  const std::size_t missing = bytes - allocated_bytes(fd(), offset, bytes);
  if (missing <= available.bytes) return;
  throw_error(ErrorCode::kResources, "the arena needs " + std::to_string(missing) +
                                         " bytes of memory and " + available.limit + " leaves " +
                                         std::to_string(available.bytes) +
                                         "; give the job more memory, or register fewer gradients");
}

bool Arena::populate_in_parts(std::size_t offset, std::size_t bytes, const Pause& pause,
                              const std::filesystem::path& root) {
  for (const std::size_t end = offset + bytes; offset < end;) {
    check_available(offset, end - offset, root);
    const std::size_t next = std::min(end, (offset / kPartBytes + 1) * kPartBytes);
    if (!populate(offset, next - offset)) return false;
    if (pause) pause();
    offset = next;
  }
  return true;
}

bool Arena::Ranges::contain(std::size_t begin, std::size_t end) const {
  const MutexLock lock(mutex_);
  const auto after = ranges_.upper_bound(begin);
  return after != ranges_.begin() && std::prev(after)->second >= end;
}

void Arena::Ranges::add(std::size_t begin, std::size_t end) {
  const MutexLock lock(mutex_);
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_.emplace(begin, end);
}

void Arena::commit(std::size_t offset, std::size_t bytes, const Pause& pause,
                   const std::filesystem::path& root) {
  if (offset > size() || bytes > size() - offset) {
    throw_error(ErrorCode::kResources, "the arena needs " + std::to_string(offset + bytes) +
                                           " bytes and is limited to " + std::to_string(size()));
  }
  if (bytes == 0 || committed_->contain(offset, offset + bytes)) return;
  // The kernel kills a process rather than refuse memory that does not fit. Therefore available
  // memory is checked first, and again before each part, because other ranks also allocate.
  int failed = populate_in_parts(offset, bytes, pause, root) ? 0 : 1;
  while (failed != 0) {
    failed = ::fallocate(fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    if (failed != 0 && errno != EINTR) {
      throw_resources("the arena needs " + std::to_string(bytes) + " bytes of memory");
    }
  }
  committed_->add(offset, offset + bytes);
}

}  // namespace kolo
