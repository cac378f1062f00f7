#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/common/exchange.h"
#include "benchmarks/peers/peers.h"
#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/unique_handle.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo::bench {
namespace {

/// Bytes of the stream per system call.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kPatience{30};

[[noreturn]] void fail(ErrorCode code, std::string what) {
  throw KoloError({.code = code, .verb = "run", .bucket = "limit", .what = std::move(what)});
}

/// Waits until one of `sockets` is ready.
template <std::size_t kCount>
void wait_for(std::array<pollfd, kCount>& sockets) {
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);
  const int ready = ::poll(sockets.data(), sockets.size(), static_cast<int>(patience.count()));
  if (ready == 0) fail(ErrorCode::kTimeout, "no byte was transferred over a link");
  if (ready < 0 && errno != EINTR) fail(ErrorCode::kIo, std::generic_category().message(errno));
}

/// Returns the bytes that `send` or `recv` moved, or 0 if the call would have blocked.
std::size_t moved(ssize_t result) {
  if (result > 0) return static_cast<std::size_t>(result);
  if (result == 0) fail(ErrorCode::kPeerLost, "a neighbouring node closed its connection");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  fail(ErrorCode::kIo, std::generic_category().message(errno));
}

/// Returns whether this is the first rank of its node.
bool is_active(const Runtime& runtime) { return runtime.local_rank() == 0; }

/// Plain TCP connections in a ring between the first ranks of the nodes: one to the next node and
/// one from the previous node. Other ranks have no connections.
class WireNeighbours {
 public:
  explicit WireNeighbours(Runtime& runtime);

  bool active() const { return static_cast<bool>(to_next_); }
  int to_next() const { return to_next_.get(); }
  int from_previous() const { return from_previous_.get(); }

 private:
  FileDescriptor to_next_;
  FileDescriptor from_previous_;
};

WireNeighbours::WireNeighbours(Runtime& runtime) {
  FileDescriptor listener;
  std::string mine;  // "node port address" of an active rank
  if (is_active(runtime)) {
    const std::string address = network_address(runtime);
    listener = listen_on(address, 0);
    mine = fmt::format("{} {} {}", runtime.node(), port_of(listener.get()), address);
  }
  const int next = (runtime.node() + 1) % runtime.num_nodes();
  for (const std::string& theirs : all_gather(runtime, "limit's addresses", mine)) {
    if (!is_active(runtime) || !theirs.starts_with(fmt::format("{} ", next))) continue;
    const std::size_t port = theirs.find(' ') + 1, address = theirs.find(' ', port) + 1;
    std::string why;
    to_next_ = connect_to(theirs.substr(address),
                          static_cast<std::uint16_t>(std::stoi(theirs.substr(port))),
                          std::chrono::steady_clock::now() + kPatience, why);
    if (!to_next_) fail(ErrorCode::kIo, "cannot connect to node " + std::to_string(next) + why);
  }
  while (is_active(runtime) && !from_previous_) {
    std::array<pollfd, 1> sockets = {{{.fd = listener.get(), .events = POLLIN, .revents = 0}}};
    wait_for(sockets);
    from_previous_ = accept_from(listener.get());
  }
}

/// Streams bytes around the ring. Threads: the main thread. Errors: KoloError(kIo or kPeerLost).
class WireRun final : public CollectiveRun {
 public:
  /// Each node sends `bytes` bytes to the next node. `neighbours` outlives this object.
  WireRun(Runtime& runtime, const WireNeighbours& neighbours, std::size_t bytes)
      : runtime_(runtime),
        neighbours_(neighbours),
        bytes_(bytes),
        out_(std::min(bytes_, kPieceBytes)),
        in_(out_.size()) {}

  void write(const void*) override {}
  void read(void*) override {}
  void read_contribution(void*) override {}
  void align() override { runtime_.barrier().wait(); }
  void run() override;
  std::string algorithm() const override { return "wire"; }

 private:
  Runtime& runtime_;
  const WireNeighbours& neighbours_;
  std::size_t bytes_;
  std::vector<std::byte> out_, in_;  ///< One piece of the stream for each direction.
};

void WireRun::run() {
  if (!neighbours_.active()) return;
  std::size_t unsent = bytes_, missing = bytes_;
  while (unsent > 0 || missing > 0) {
    std::size_t progress = 0;
    if (unsent > 0) {
      const std::size_t sent = moved(
          ::send(neighbours_.to_next(), out_.data(), std::min(unsent, out_.size()), MSG_NOSIGNAL));
      unsent -= sent;
      progress += sent;
    }
    if (missing > 0) {
      const std::size_t received =
          moved(::recv(neighbours_.from_previous(), in_.data(), std::min(missing, in_.size()), 0));
      missing -= received;
      progress += received;
    }
    if (progress > 0) continue;
    std::array<pollfd, 2> sockets = {
        {{.fd = missing > 0 ? neighbours_.from_previous() : -1, .events = POLLIN, .revents = 0},
         {.fd = unsent > 0 ? neighbours_.to_next() : -1, .events = POLLOUT, .revents = 0}}};
    wait_for(sockets);
  }
}

class WireLimit final : public CollectiveSystem {
 public:
  explicit WireLimit(Runtime& runtime) : runtime_(runtime), neighbours_(runtime) {
    for (const std::string& node :
         all_gather(runtime, "limit's nodes", std::to_string(runtime.node()))) {
      node_of_.push_back(std::stoi(node));
    }
  }

  std::string name() const override { return "limit"; }
  bool sums() const override { return false; }
  bool covers(std::size_t bytes) const override { return bytes >= kLeastBoundBytes; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kUser, "the limit is measured in host memory; leave limit out");
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    runs.push_back(
        std::make_unique<WireRun>(runtime_, neighbours_, least_wire_bytes(what, node_of_)));
    return runs;
  }

 private:
  Runtime& runtime_;
  WireNeighbours neighbours_;
  std::vector<int> node_of_;  // by rank
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_wire_limit(Runtime& runtime) {
  if (runtime.num_nodes() > 1) return std::make_unique<WireLimit>(runtime);
  refuse(
      "limit is the wire between nodes; inside one node no lower bound can be "
      "measured: compare with streaming, which is a reference");
}

}  // namespace kolo::bench
