#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"
#include "comm/rendezvous/tcp_frame.h"

namespace kolo {

/// One end of a stream socket that never blocks: bytes to send wait in a queue, bytes that arrived
/// in a buffer, and `progress` moves both. A connection that failed, or over which nonsense came,
/// is closed and keeps the reason.
///
/// Units:   bytes. Threads: one.
/// Errors:  none thrown; see `is_open` and `why_closed`.
class TcpConnection {
 public:
  struct Frame {
    TcpFrameKind kind = TcpFrameKind::kData;
    std::string payload;
  };

  /// The time that deadlines of connections refer to.
  static TimePoint now() { return SteadyClock{}.now(); }

  /// Takes over a connected socket that does not block. Longer frames than `max_frame_bytes` are
  /// nonsense.
  TcpConnection(FileDescriptor socket, std::size_t max_frame_bytes);

  bool is_open() const { return static_cast<bool>(socket_); }
  const std::string& why_closed() const { return why_closed_; }
  /// "address:port" of the other end, for messages.
  const std::string& peer_name() const { return peer_name_; }
  int fd() const { return socket_.get(); }

  /// Queues bytes and sends as many as the kernel takes now.
  void send(std::string_view bytes);
  bool has_unsent() const { return unsent_ < out_.size(); }

  /// Sends and receives what is possible now.
  void progress();

  /// What arrived and was not taken yet.
  std::string_view arrived() const { return std::string_view(in_).substr(taken_); }
  /// Removes the first `bytes` of `arrived()`.
  void take(std::size_t bytes);
  /// The first frame, once it is complete. Closes the connection if it is malformed.
  std::optional<Frame> take_frame();

  void close(std::string why);

 private:
  void send_queued();
  void receive();

  FileDescriptor socket_;
  std::size_t max_frame_bytes_;
  std::string peer_name_;
  std::string why_closed_;
  std::string in_;
  std::size_t taken_ = 0;
  std::string out_;
  std::size_t unsent_ = 0;  // Offset of the first byte of out_ that the kernel has not taken.
};

/// Waits until `listener` (if valid) or one of the open connections can move, or until `until`, and
/// then moves the connections. Returns whether the listener has a new connection.
/// Errors: KoloError(kIo) if poll fails.
bool progress_until(TimePoint until, int listener, std::span<TcpConnection* const> connections);

/// Sends `error` to all and waits, about a second at most, until they have closed: a socket closed
/// earlier could take the message back from those that are still sending.
void close_with_error(const Error& error, std::span<TcpConnection* const> connections);

}  // namespace kolo
