#include "comm/rendezvous/tcp_client.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

/// How much longer than rank 0 the others wait: its error names who is missing, ours cannot.
constexpr std::chrono::seconds kGrace{2};

[[noreturn]] void fail(ErrorCode code, const TcpOptions& options, std::string_view what,
                       std::string_view why) {
  throw KoloError(Error{
      .code = code,
      .rank = options.rank,
      .peer = 0,
      .verb = {},
      .bucket = {},
      .what = fmt::format("rendezvous at {}:{}: {} ({})", options.host, options.port, what, why)});
}

/// The next frame from rank 0; empty if the connection closes or the deadline passes first.
/// Errors: the KoloError that rank 0 sends instead.
std::optional<TcpConnection::Frame> next_frame(TcpConnection& connection, TimePoint deadline) {
  for (;;) {
    if (auto frame = connection.take_frame()) {
      if (frame->kind != TcpFrameKind::kError) return frame;
      const std::optional<Error> error = decode_error(frame->payload);
      connection.close(error ? error->to_string() : "it sent a malformed error");
      if (error) throw KoloError(*error);
    }
    if (!connection.is_open() || TcpConnection::now() >= deadline) return std::nullopt;
    TcpConnection* const only = &connection;
    progress_until(deadline, -1, std::span(&only, 1));
  }
}

TcpConnection join(const TcpOptions& options) {
  constexpr std::chrono::milliseconds kFirstPause{10};
  constexpr std::chrono::milliseconds kLongestPause{500};
  const TimePoint deadline = TcpConnection::now() + options.timeout + kGrace;
  const auto size = static_cast<std::size_t>(options.size);
  const std::size_t max_frame_bytes =
      size * (sizeof(std::uint64_t) + options.max_contribution_bytes);
  const std::string hello = encode_hello({.rank = static_cast<std::uint32_t>(options.rank),
                                          .size = static_cast<std::uint32_t>(options.size),
                                          .job_hash = hash_job_id(options.job_id)});
  std::string why;
  std::chrono::milliseconds pause = kFirstPause;
  while (TcpConnection::now() < deadline) {
    if (FileDescriptor socket = connect_to(options.host, options.port, deadline, why)) {
      TcpConnection connection(std::move(socket), max_frame_bytes);
      connection.send(hello);
      const auto answer = next_frame(connection, deadline);
      if (answer && answer->kind == TcpFrameKind::kWelcome) return connection;
      connection.close("it said nothing");
      why = connection.why_closed();
    }
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(2 * pause, kLongestPause);
  }
  fail(ErrorCode::kTimeout, options,
       fmt::format("rank 0 did not answer within {} ms", options.timeout.count()), why);
}

}  // namespace

TcpClient::TcpClient(const TcpOptions& options) : options_(options), connection_(join(options)) {}

std::vector<std::string> TcpClient::all_gather(const std::string& mine) {
  check(mine.size() <= options_.max_contribution_bytes, "contribution to all_gather is too long");
  connection_.send(encode_frame(TcpFrameKind::kData, mine));
  const auto answer = next_frame(connection_, TcpConnection::now() + options_.timeout + kGrace);
  if (answer) {
    if (auto gathered = decode_gathered(answer->payload, options_.size)) return *gathered;
    connection_.close("it sent a malformed result");
  }
  if (connection_.is_open()) {
    connection_.close(fmt::format("rank 0 did not answer within {} ms", options_.timeout.count()));
    fail(ErrorCode::kTimeout, options_, "no result", connection_.why_closed());
  }
  fail(ErrorCode::kPeerLost, options_, "lost rank 0", connection_.why_closed());
}

}  // namespace kolo
