#include "comm/rendezvous/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// For poll: rounded up, so that it does not return just before the deadline.
int milliseconds_until(TimePoint until) {
  constexpr std::chrono::milliseconds kLongest{60'000};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock{}.now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds{0}, kLongest).count());
}

}  // namespace

TcpConnection::TcpConnection(FileDescriptor socket, std::size_t max_frame_bytes)
    : socket_(std::move(socket)),
      max_frame_bytes_(max_frame_bytes),
      peer_name_(peer_of(socket_.get())) {}

void TcpConnection::close(std::string why) {
  if (!is_open()) return;
  socket_.reset();
  why_closed_ = std::move(why);
  out_.clear();
  unsent_ = 0;
}

void TcpConnection::send(std::string_view bytes) {
  if (!is_open()) return;
  out_ += bytes;
  send_queued();
}

void TcpConnection::progress() {
  if (is_open()) send_queued();
  if (is_open()) receive();
}

void TcpConnection::send_queued() {
  while (has_unsent()) {
    const ssize_t sent =
        ::send(fd(), out_.data() + unsent_, out_.size() - unsent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (!would_block(errno)) close(std::strerror(errno));
      return;
    }
    unsent_ += static_cast<std::size_t>(sent);
  }
  out_.clear();
  unsent_ = 0;
}

void TcpConnection::receive() {
  // A peer is at most one frame ahead of us; more than that was never asked for.
  const std::size_t most = 2 * (kFrameHeaderBytes + max_frame_bytes_);
  std::array<char, kReadBytes> buffer;
  for (;;) {
    const ssize_t got = ::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) {
      if (!would_block(errno)) close(std::strerror(errno));
      return;
    }
    if (got == 0) return close("the other end closed the connection");
    in_.append(buffer.data(), static_cast<std::size_t>(got));
    if (arrived().size() > most) return close("it sent more than was asked for");
  }
}

void TcpConnection::take(std::size_t bytes) {
  taken_ += bytes;
  if (taken_ == in_.size()) {
    in_.clear();
    taken_ = 0;
  }
}

std::optional<TcpConnection::Frame> TcpConnection::take_frame() {
  if (arrived().size() < kFrameHeaderBytes) return std::nullopt;
  const std::optional<FrameHeader> header = decode_frame_header(arrived());
  if (!header) {
    close("it sent a malformed frame");
    return std::nullopt;
  }
  if (header->length > max_frame_bytes_) {
    close(fmt::format("it announced a frame of {} bytes where {} are allowed", header->length,
                      max_frame_bytes_));
    return std::nullopt;
  }
  if (arrived().size() < kFrameHeaderBytes + header->length) return std::nullopt;
  Frame frame{.kind = header->kind,
              .payload = std::string(arrived().substr(kFrameHeaderBytes, header->length))};
  take(kFrameHeaderBytes + header->length);
  return frame;
}

bool progress_until(TimePoint until, int listener, std::span<TcpConnection* const> connections) {
  std::vector<pollfd> polled;
  polled.push_back({.fd = listener, .events = POLLIN, .revents = 0});  // Ignored if negative.
  for (const TcpConnection* connection : connections) {
    const int events = POLLIN | (connection->has_unsent() ? POLLOUT : 0);
    polled.push_back({.fd = connection->fd(), .events = static_cast<short>(events), .revents = 0});
  }
  if (::poll(polled.data(), polled.size(), milliseconds_until(until)) < 0 && errno != EINTR) {
    throw KoloError(Error{.code = ErrorCode::kIo,
                          .verb = {},
                          .bucket = {},
                          .what = fmt::format("poll: {}", std::strerror(errno))});
  }
  for (std::size_t i = 0; i < connections.size(); ++i) {
    if (polled[i + 1].revents != 0) connections[i]->progress();
  }
  return polled[0].revents != 0;
}

void close_with_error(const Error& error, std::span<TcpConnection* const> connections) {
  const std::string frame = encode_frame(TcpFrameKind::kError, encode_error(error));
  for (TcpConnection* connection : connections) connection->send(frame);
  const TimePoint deadline = SteadyClock{}.now() + std::chrono::seconds{1};
  std::vector<TcpConnection*> open(connections.begin(), connections.end());
  for (;;) {
    std::erase_if(open, [](const TcpConnection* connection) { return !connection->is_open(); });
    if (open.empty() || SteadyClock{}.now() >= deadline) break;
    progress_until(deadline, -1, open);
  }
  for (TcpConnection* connection : open) connection->close("the rendezvous failed");
}

}  // namespace kolo
