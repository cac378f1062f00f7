#include "comm/rendezvous/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <concepts>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

constexpr std::string_view kFrameMagic = "KOLORDV\n";

template <std::unsigned_integral Number>
void put(std::string& out, Number number) {
  for (std::size_t byte = 0; byte < sizeof(Number); ++byte) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(number >> (8 * byte))));
  }
}

/// Removes one number from the front of `in`. Before: `in` has at least sizeof(Number) bytes.
template <std::unsigned_integral Number>
Number take(std::string_view& in) {
  Number number = 0;
  for (std::size_t byte = 0; byte < sizeof(Number); ++byte) {
    number |= static_cast<Number>(static_cast<unsigned char>(in[byte])) << (8 * byte);
  }
  in.remove_prefix(sizeof(Number));
  return number;
}

}  // namespace

std::string encode_hello(const Hello& hello) {
  std::string bytes(kFrameMagic);
  put(bytes, hello.version);
  put(bytes, hello.rank);
  put(bytes, hello.size);
  put(bytes, std::uint32_t{0});
  put(bytes, hello.job_hash);
  return bytes;
}

bool may_be_hello(std::string_view first_bytes) {
  return kFrameMagic.starts_with(first_bytes.substr(0, kFrameMagic.size()));
}

std::optional<Hello> decode_hello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || !may_be_hello(bytes)) return std::nullopt;
  bytes.remove_prefix(kFrameMagic.size());
  Hello hello;
  hello.version = take<std::uint32_t>(bytes);
  hello.rank = take<std::uint32_t>(bytes);
  hello.size = take<std::uint32_t>(bytes);
  take<std::uint32_t>(bytes);
  hello.job_hash = take<std::uint64_t>(bytes);
  return hello;
}

std::uint64_t hash_job_id(std::string_view job_id) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : job_id) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

std::string encode_frame(TcpFrameKind kind, std::string_view payload) {
  std::string bytes;
  bytes.reserve(kFrameHeaderBytes + payload.size());
  put(bytes, static_cast<std::uint32_t>(kind));
  put(bytes, std::uint32_t{0});
  put(bytes, static_cast<std::uint64_t>(payload.size()));
  return bytes.append(payload);
}

std::optional<FrameHeader> decode_frame_header(std::string_view bytes) {
  const auto kind = take<std::uint32_t>(bytes);
  if (kind < static_cast<std::uint32_t>(TcpFrameKind::kWelcome) ||
      kind > static_cast<std::uint32_t>(TcpFrameKind::kError)) {
    return std::nullopt;
  }
  take<std::uint32_t>(bytes);
  return FrameHeader{.kind = static_cast<TcpFrameKind>(kind), .length = take<std::uint64_t>(bytes)};
}

std::string encode_gathered(const std::vector<std::string>& contributions) {
  std::string bytes;
  for (const std::string& contribution : contributions) {
    put(bytes, static_cast<std::uint64_t>(contribution.size()));
    bytes += contribution;
  }
  return bytes;
}

std::optional<std::vector<std::string>> decode_gathered(std::string_view payload, int size) {
  std::vector<std::string> contributions;
  for (int rank = 0; rank < size; ++rank) {
    if (payload.size() < sizeof(std::uint64_t)) return std::nullopt;
    const auto length = take<std::uint64_t>(payload);
    if (length > payload.size()) return std::nullopt;
    contributions.emplace_back(payload.substr(0, length));
    payload.remove_prefix(length);
  }
  if (!payload.empty()) return std::nullopt;
  return contributions;
}

std::string encode_error(const Error& error) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(error.code));
  put(bytes, static_cast<std::uint32_t>(error.rank));
  put(bytes, static_cast<std::uint32_t>(error.peer));
  return bytes + error.what;
}

std::optional<Error> decode_error(std::string_view payload) {
  if (payload.size() < 3 * sizeof(std::uint32_t)) return std::nullopt;
  const auto code = take<std::uint32_t>(payload);
  if (code > static_cast<std::uint32_t>(kLastErrorCode)) return std::nullopt;
  Error error;
  error.code = static_cast<ErrorCode>(code);
  error.rank = static_cast<int>(take<std::uint32_t>(payload));
  error.peer = static_cast<int>(take<std::uint32_t>(payload));
  error.what = payload;
  return error;
}

namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// Returns the argument for `poll`; rounded up, so that `poll` does not return just before `until`.
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
  // A peer may be at most one frame ahead; more data is invalid.
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
  polled.push_back({.fd = listener, .events = POLLIN, .revents = 0});  // ignored if negative
  for (const TcpConnection* connection : connections) {
    const int events = POLLIN | (connection->has_unsent() ? POLLOUT : 0);
    polled.push_back({.fd = connection->fd(), .events = static_cast<short>(events), .revents = 0});
  }
  if (::poll(polled.data(), polled.size(), milliseconds_until(until)) < 0 && errno != EINTR) {
    throw KoloError(
        Error{.code = ErrorCode::kIo, .what = fmt::format("poll: {}", std::strerror(errno))});
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
