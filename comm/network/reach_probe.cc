#include "comm/network/reach_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

/// The text that a listener sends. It fits in every socket buffer, so that sending does not block.
std::string greeting(const std::string& job_id, int node) {
  return fmt::format("kolo reach 1 {} {}\n", job_id, node);
}

/// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  static SocketAddress of(const std::string& numeric, std::uint16_t port) {
    SocketAddress made;
    auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
    if (::inet_pton(AF_INET, numeric.c_str(), &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
      made.length = sizeof v4;
    } else if (::inet_pton(AF_INET6, numeric.c_str(), &v6.sin6_addr) == 1) {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
      made.length = sizeof v6;
    }
    return made;
  }

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Returns the local address of a connection.
std::string own_address(int socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return {};
  const void* bytes = own.ss_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<sockaddr_in&>(own).sin_addr)
                          : &reinterpret_cast<sockaddr_in6&>(own).sin6_addr;
  const char* address = ::inet_ntop(own.ss_family, bytes, text.data(), text.size());
  return address == nullptr ? "" : address;
}

/// One attempt to connect to an address of a target.
class Attempt {
 public:
  Attempt(const ReachTarget& target, int interface) : target_(&target), interface_(interface) {}

  const ReachTarget& target() const { return *target_; }
  int interface() const { return interface_; }
  int socket() const { return socket_.get(); }
  short awaited() const { return connected_ ? POLLIN : POLLOUT; }
  const std::string& why() const { return why_; }

  /// Starts the attempt. Returns whether it is in progress.
  bool begin() {
    const SocketAddress address = SocketAddress::of(
        target_->interfaces[static_cast<std::size_t>(interface_)].address, target_->port);
    if (address.length == 0) return fail("no address");
    socket_ = FileDescriptor(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) return fail(std::strerror(errno));
    if (::connect(socket_.get(), address.get(), address.length) == 0) return true;
    return errno == EINPROGRESS || fail(std::strerror(errno));
  }

  enum class Outcome : std::uint8_t { kPending, kReached, kFailed };

  /// Advances the attempt after `poll` has found the socket ready for `awaited()`.
  Outcome advance(const std::string& expected) {
    if (!connected_) {
      int error = 0;
      socklen_t length = sizeof error;
      ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error != 0) return failed(std::strerror(error));
      connected_ = true;
    }
    std::array<char, 64> bytes{};
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count < 0) {
      const bool is_early = errno == EAGAIN || errno == EINTR;
      return is_early ? Outcome::kPending : failed(std::strerror(errno));
    }
    heard_.append(bytes.data(), static_cast<std::size_t>(count));
    if (heard_ == expected) return Outcome::kReached;
    if (count > 0 && expected.starts_with(heard_)) return Outcome::kPending;
    return failed("another program or machine answers there");
  }

  void give_up(const std::string& why) { fail(why); }
  std::string from() const { return own_address(socket_.get()); }

 private:
  bool fail(std::string why) {
    why_ = std::move(why);
    return false;
  }
  Outcome failed(std::string why) {
    fail(std::move(why));
    return Outcome::kFailed;
  }

  const ReachTarget* target_;
  int interface_;
  FileDescriptor socket_;
  bool connected_ = false;
  std::string heard_;
  std::string why_;
};

class Probe {
 public:
  Probe(const std::string& job_id, const std::vector<NetworkInterface>& mine,
        const std::vector<ReachTarget>& targets, const ReachLimits& limits)
      : job_id_(job_id), mine_(mine), targets_(targets), limits_(limits) {
    // Tries the first address of every target before the second address of any target.
    for (std::size_t i = 0, left = 1; left > 0; ++i) {
      left = 0;
      for (const ReachTarget& target : targets) {
        if (i >= target.interfaces.size()) continue;
        waiting_.emplace_back(target, static_cast<int>(i));
        ++left;
      }
    }
  }

  NodeReach run() {
    end_ = later(clock_.now(), limits_.all);
    while ((!active_.empty() || !waiting_.empty()) && clock_.now() < end_) {
      fill();
      poll();
    }
    for (Attempt& attempt : active_) end(attempt, "no answer in time");
    for (Attempt& attempt : waiting_) end(attempt, "not tried in time");
    NodeReach reach{.interfaces = mine_, .ways = std::move(ways_), .no_ways = {}};
    std::ranges::sort(reach.ways);
    for (const ReachTarget& target : targets_) {
      if (!has_way(reach.ways, target.node)) {
        reach.no_ways.push_back({.to_node = target.node, .why = failures_of(target)});
      }
    }
    return reach;
  }

 private:
  static bool has_way(const std::vector<Way>& ways, int node) {
    return std::ranges::find(ways, node, &Way::to_node) != ways.end();
  }

  void fill() {
    while (!waiting_.empty() && static_cast<int>(active_.size()) < limits_.at_once) {
      Attempt next = std::move(waiting_.front());
      waiting_.pop_front();
      if (next.begin()) {
        active_.push_back(std::move(next));
      } else {
        end(next, next.why());
      }
    }
  }

  void poll() {
    if (active_.empty()) return;
    std::vector<pollfd> polled;
    for (const Attempt& attempt : active_) {
      polled.push_back({.fd = attempt.socket(), .events = attempt.awaited(), .revents = 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - clock_.now());
    constexpr std::chrono::milliseconds kNone{0};
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max(left, kNone).count()));
    std::vector<Attempt> pending;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      Attempt& attempt = active_[i];
      const auto outcome = polled[i].revents == 0
                               ? Attempt::Outcome::kPending
                               : attempt.advance(greeting(job_id_, attempt.target().node));
      if (outcome == Attempt::Outcome::kPending) pending.push_back(std::move(attempt));
      if (outcome == Attempt::Outcome::kReached) note_way(attempt);
      if (outcome == Attempt::Outcome::kFailed) end(attempt, attempt.why());
    }
    active_ = std::move(pending);
  }

  void note_way(const Attempt& attempt) {
    const std::string from = attempt.from();
    const auto through = std::ranges::find(mine_, from, &NetworkInterface::address);
    if (through == mine_.end()) {
      end(attempt, "the system goes there through " + from);
      return;
    }
    if (!has_way(ways_, attempt.target().node)) ++reached_;
    ways_.push_back({.to_node = attempt.target().node,
                     .to = attempt.interface(),
                     .from = static_cast<int>(through - mine_.begin())});
    if (reached_ == targets_.size()) {
      end_ = std::min(end_, later(clock_.now(), limits_.more_ways));
    }
  }

  void end(const Attempt& attempt, const std::string& why) {
    failures_.emplace_back(&attempt.target(), attempt.interface(), why);
  }

  std::string failures_of(const ReachTarget& target) const {
    // A loopback address never belongs to another machine, so its failure is not reported.
    const bool has_others = !std::ranges::all_of(target.interfaces, &NetworkInterface::is_loopback);
    std::string text;
    for (const auto& [whose, interface, why] : failures_) {
      if (whose != &target) continue;
      const NetworkInterface& theirs = target.interfaces[static_cast<std::size_t>(interface)];
      if (theirs.is_loopback && has_others) continue;
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", theirs.address, why);
    }
    return text.empty() ? "it has no address" : text;
  }

  const std::string& job_id_;
  const std::vector<NetworkInterface>& mine_;
  const std::vector<ReachTarget>& targets_;
  const ReachLimits limits_;
  const SteadyClock clock_;
  TimePoint end_;
  std::deque<Attempt> waiting_;
  std::vector<Attempt> active_;
  std::vector<Way> ways_;
  std::size_t reached_ = 0;  // number of targets that have answered
  std::vector<std::tuple<const ReachTarget*, int, std::string>> failures_;
};

}  // namespace

ReachListener::ReachListener() : listener_(listen_on("", 0)), stop_(::eventfd(0, EFD_CLOEXEC)) {}

ReachListener::~ReachListener() {
  ::eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

std::uint16_t ReachListener::port() const { return port_of(listener_.get()); }

void ReachListener::serve(const std::string& job_id, int node) {
  check(job_id.size() <= kMaxJobIdBytes, "the job's id is too long");
  check(!thread_.joinable(), "a listener serves one node");
  greeting_ = greeting(job_id, node);
  thread_ = std::thread([this] { answer_all(); });
}

void ReachListener::answer_all() noexcept {
  try {
    for (;;) {
      std::array<pollfd, 2> polled = {{{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                       {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
      ::poll(polled.data(), polled.size(), -1);
      if (polled[1].revents != 0) return;
      while (const FileDescriptor caller = accept_from(listener_.get())) {
        ::send(caller.get(), greeting_.data(), greeting_.size(), MSG_NOSIGNAL);
      }
    }
  } catch (const std::exception& error) {
    log::warn(fmt::format("nodes that look for this one get no answer: {}", error.what()));
  }
}

NodeReach probe_reach(const std::string& job_id, const std::vector<NetworkInterface>& mine,
                      const std::vector<ReachTarget>& targets, const ReachLimits& limits) {
  return Probe(job_id, mine, targets, limits).run();
}

}  // namespace kolo
