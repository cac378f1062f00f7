#include "comm/transport/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "comm/base/error.h"

namespace kolo {

FileDescriptor make_event_fd() {
  FileDescriptor fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) {
    throw KoloError(Error{.code = ErrorCode::kResources,
                          .verb = {},
                          .bucket = {},
                          .what = std::string("cannot make an event descriptor: ") +
                                  std::strerror(errno) + "; see ulimit -n"});
  }
  return fd;
}

void raise_event(int event_fd) noexcept {
  const std::uint64_t one = 1;
  // Fails only when the count is at its limit, and then the descriptor is readable already.
  [[maybe_unused]] const auto written = ::write(event_fd, &one, sizeof one);
}

void drain_event(int event_fd) noexcept {
  std::uint64_t count = 0;
  // Fails only when the descriptor is not readable, which is what is wanted.
  [[maybe_unused]] const auto taken = ::read(event_fd, &count, sizeof count);
}

}  // namespace kolo
