#include "benchmarks/peers/node_arenas.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/common/exchange.h"
#include "comm/base/error.h"

namespace kolo::bench {

NodeArenas::NodeArenas(Runtime& runtime, std::string_view name, std::size_t bytes)
    : own_(static_cast<std::size_t>(runtime.rank())) {
  Arena mine = Arena::create(bytes);
  const std::vector<std::string> paths =
      all_gather(runtime, name, fmt::format("/proc/{}/fd/{}", ::getpid(), mine.fd()));
  for (std::size_t rank = 0; rank < paths.size(); ++rank) {
    if (rank == own_) {
      arenas_.push_back(std::move(mine));
      continue;
    }
    FileDescriptor fd(::open(paths[rank].c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) {
      throw KoloError({.code = ErrorCode::kIo,
                       .what = fmt::format("cannot map the memory of rank {}: {}: {}", rank,
                                           paths[rank], std::generic_category().message(errno))});
    }
    arenas_.push_back(Arena::adopt(std::move(fd), bytes));
  }
  runtime.barrier();  // Until all have opened all.
}

}  // namespace kolo::bench
