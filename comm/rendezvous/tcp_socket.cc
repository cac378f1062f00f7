#include "comm/rendezvous/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

constexpr std::chrono::seconds kConnectTimeout{3};

[[noreturn]] void fail(ErrorCode code, std::string what) {
  throw KoloError(Error{.code = code, .verb = {}, .bucket = {}, .what = std::move(what)});
}

struct AddressDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressDeleter>;

/// Returns the addresses of a host; all local addresses for an empty host. Returns null if there
/// are none, and sets `why` to the reason.
AddressList resolve(const std::string& host, std::uint16_t port, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                  std::to_string(port).c_str(), &hints, &list);
  if (error != 0) why = ::gai_strerror(error);
  return AddressList(error == 0 ? list : nullptr);
}

FileDescriptor open_socket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_flag(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

FileDescriptor listen_at(const addrinfo& address, std::string& why) {
  FileDescriptor socket = open_socket(address.ai_family);
  if (socket) {
    set_flag(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    // One socket serves both address families if the system supports it.
    if (address.ai_family == AF_INET6) set_flag(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0) {
      return socket;
    }
  }
  why = std::strerror(errno);
  return {};
}

/// Waits for a connect in progress. Returns its error; ETIMEDOUT at the deadline.
int finish_connect(int socket, TimePoint deadline) {
  pollfd polled{.fd = socket, .events = POLLOUT, .revents = 0};
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock{}.now());
    if (left.count() <= 0) return ETIMEDOUT;
    ready = ::poll(&polled, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
  } while (ready == 0 || (ready < 0 && errno == EINTR));
  if (ready < 0) return errno;
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

FileDescriptor connect_at(const addrinfo& address, TimePoint deadline, std::string& why) {
  FileDescriptor socket = open_socket(address.ai_family);
  int error = socket ? 0 : errno;
  if (socket && ::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    error = errno == EINPROGRESS || errno == EINTR ? finish_connect(socket.get(), deadline) : errno;
  }
  if (error == 0) {
    set_flag(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    return socket;
  }
  why = std::strerror(error);
  return {};
}

/// Whether both ends of the connection are the same socket. If no process listens at a port of the
/// ephemeral range, the kernel may choose this port for the connecting end.
bool is_connected_to_itself(int socket) {
  sockaddr_storage mine{};
  sockaddr_storage theirs{};
  socklen_t mine_length = sizeof mine;
  socklen_t theirs_length = sizeof theirs;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &mine_length) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&theirs), &theirs_length) == 0 &&
         mine_length == theirs_length && std::memcmp(&mine, &theirs, mine_length) == 0;
}

}  // namespace

FileDescriptor listen_on(const std::string& host, std::uint16_t port) {
  std::string why;
  const AddressList addresses = resolve(is_loopback(host) ? host : "", port, why);
  // IPv6 is tried first, because its socket also accepts IPv4 connections.
  bool is_taken = false;
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      if (at->ai_family != family) continue;
      if (FileDescriptor listener = listen_at(*at, why)) return listener;
      is_taken |= errno == EADDRINUSE;
    }
  }
  fail(ErrorCode::kIo, fmt::format("rendezvous: cannot listen on port {}: {}{}", port, why,
                                   is_taken ? "; is another job at it?" : ""));
}

std::uint16_t port_of(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail(ErrorCode::kIo, fmt::format("getsockname: {}", std::strerror(errno)));
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

FileDescriptor accept_from(int listener) {
  FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) {
    set_flag(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    fail(ErrorCode::kResources,
         fmt::format("rendezvous: cannot take a connection: {}; raise the limit of open files "
                     "(ulimit -n)",
                     std::strerror(errno)));
  }
  return socket;
}

FileDescriptor connect_to(const std::string& host, std::uint16_t port, TimePoint deadline,
                          std::string& why) {
  const AddressList addresses = resolve(host, port, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    // An address that does not answer must not prevent trying the next one.
    const TimePoint next = SteadyClock{}.now() + kConnectTimeout;
    FileDescriptor socket = connect_at(*at, std::min(deadline, next), why);
    if (!socket) continue;
    if (!is_connected_to_itself(socket.get())) return socket;
    why = "no process listens";
  }
  return {};
}

std::string peer_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return fmt::format("{}:{}", host.data(), port.data());
}

}  // namespace kolo
