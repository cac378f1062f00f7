#include "comm/transport/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/open_files.h"

namespace kolo {

namespace {

constexpr std::size_t kMostDescriptors = 4;
constexpr int kRetryMs = 1;

[[noreturn]] void throw_errno(std::string_view what) {
  const bool resources = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  std::string text = std::string(what) + ": " + std::strerror(errno);
  if (errno == EMFILE) text += "; " + open_file_advice();
  throw KoloError(
      Error{.code = resources ? ErrorCode::kResources : ErrorCode::kIo, .what = std::move(text)});
}

[[noreturn]] void throw_timeout(std::string_view what) {
  throw KoloError(
      Error{.code = ErrorCode::kTimeout, .verb = {}, .bucket = {}, .what = std::string(what)});
}

struct Address {
  explicit Address(std::string_view name) {
    check(name.size() <= kLongestSocketName, "the name of a local socket is too long");
    socket.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), socket.sun_path + 1);  // a leading 0 marks an abstract name
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }

  sockaddr_un socket{};
  socklen_t size = 0;
};

FileDescriptor make_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("cannot make a local socket");
  return socket;
}

void wait_readable(int fd, TimePoint deadline, std::string_view what) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - TimePoint(std::chrono::steady_clock::now()));
    if (left.count() <= 0) throw_timeout(what);
    pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
    const auto most = std::min<std::chrono::milliseconds::rep>(left.count(), 60'000);
    if (::poll(&waited, 1, static_cast<int>(most)) > 0) return;
  }
}

}  // namespace

FileDescriptor listen_local(std::string_view name, int backlog) {
  FileDescriptor listener = make_socket();
  const Address address(name);
  if (::bind(listener.get(), address.get(), address.size) != 0 ||
      ::listen(listener.get(), backlog) != 0) {
    throw_errno("cannot listen on the local socket '" + std::string(name) + "'");
  }
  return listener;
}

FileDescriptor connect_local(std::string_view name, TimePoint deadline) {
  const Address address(name);
  for (;;) {
    FileDescriptor socket = make_socket();
    if (::connect(socket.get(), address.get(), address.size) == 0) return socket;
    const bool not_yet = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR;
    if (!not_yet) throw_errno("cannot connect to the local socket '" + std::string(name) + "'");
    if (TimePoint(std::chrono::steady_clock::now()) >= deadline) {
      throw_timeout("no process listens on the local socket '" + std::string(name) + "'");
    }
    ::poll(nullptr, 0, kRetryMs);  // the peer has not started listening yet
  }
}

FileDescriptor accept_local(int listener, TimePoint deadline) {
  for (;;) {
    FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) return socket;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      throw_errno("cannot accept a local connection");
    }
    wait_readable(listener, deadline, "not every rank of this node connected");
  }
}

bool is_same_user(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == ::geteuid();
}

bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors) {
  check(descriptors.size() <= kMostDescriptors, "too many descriptors in one packet");
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return false;
    throw_errno("cannot send to a rank of this node");
  }
}

std::optional<Packet> receive_packet(int socket, std::size_t longest, TimePoint deadline) {
  Packet packet;
  packet.bytes.resize(longest);
  iovec part{.iov_base = packet.bytes.data(), .iov_len = longest};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = -1;
  while ((count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == ECONNRESET) return std::nullopt;
    if (errno != EAGAIN && errno != EINTR) throw_errno("cannot read from a rank of this node");
    wait_readable(socket, deadline, "a rank of this node does not answer");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t descriptors = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < descriptors; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      packet.descriptors.emplace_back(fd);
    }
  }
  // The system drops descriptors that exceed this process's limit.
  if ((message.msg_flags & MSG_CTRUNC) != 0 && packet.descriptors.size() < kMostDescriptors) {
    errno = EMFILE;
    throw_errno("cannot take the memory of a rank of this node");
  }
  if (count == 0) return std::nullopt;
  packet.bytes.resize(static_cast<std::size_t>(count));
  return packet;
}

}  // namespace kolo
