#include "comm/base/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/unique_handle.h"

namespace kolo {

void raise_open_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // on failure, the old limit stays
}

void require_open_files(std::size_t count, std::string_view reason) {
  std::vector<FileDescriptor> opened;
  while (opened.size() < count) {
    opened.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (opened.back()) continue;
    if (errno != EMFILE && errno != ENFILE) return;
    throw KoloError({.code = ErrorCode::kResources,
                     .what = std::string(reason) + " needs " + std::to_string(count) +
                             " descriptors and this process may open " +
                             std::to_string(opened.size() - 1) + " more; " + open_file_advice()});
  }
}

std::string open_file_advice() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  return "raise the limit of open files" +
         (is_known ? ", which is " + std::to_string(limit.rlim_cur) : "") + " (ulimit -n)";
}

}  // namespace kolo
