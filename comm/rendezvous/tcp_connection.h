#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Bytes on the wire of the TCP rendezvous; all numbers are little-endian.
///
///   client -> server   hello    magic u64 | version u32 | rank u32 | size u32 | 0 u32 | job u64
///   server -> client   welcome  (when all have joined)
///   client -> server   data     contribution of this rank
///   server -> client   data     contributions of all: per rank length u64, bytes
///   server -> client   error    code u32 | rank u32 | peer u32 | sentence
///
/// All but the hello are frames: kind u32 | 0 u32 | length u64 | length bytes. The hello has this
/// layout in every version, so that a different version is recognised.

inline constexpr std::uint32_t kRendezvousVersion = 1;
inline constexpr std::size_t kHelloBytes = 32;
inline constexpr std::size_t kFrameHeaderBytes = 16;

struct Hello {
  std::uint32_t version = kRendezvousVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t job_hash = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};

std::string encode_hello(const Hello& hello);
/// Whether these bytes, possibly incomplete, can begin a hello.
bool may_be_hello(std::string_view first_bytes);
/// Takes exactly kHelloBytes. Empty unless they are a hello.
std::optional<Hello> decode_hello(std::string_view bytes);

/// FNV-1a, 64 bits. Source: RFC 9923.
std::uint64_t hash_job_id(std::string_view job_id);

enum class TcpFrameKind : std::uint32_t { kWelcome = 1, kData = 2, kError = 3 };

struct FrameHeader {
  TcpFrameKind kind = TcpFrameKind::kData;
  std::uint64_t length = 0;
};

std::string encode_frame(TcpFrameKind kind, std::string_view payload);
/// Takes at least kFrameHeaderBytes. Empty for an unknown kind.
std::optional<FrameHeader> decode_frame_header(std::string_view bytes);

std::string encode_gathered(const std::vector<std::string>& contributions);
/// Empty unless `payload` holds exactly `size` contributions.
std::optional<std::vector<std::string>> decode_gathered(std::string_view payload, int size);

std::string encode_error(const Error& error);
/// Empty if `payload` is too short or the code is unknown. Verb and bucket are not transferred.
std::optional<Error> decode_error(std::string_view payload);

/// One end of a non-blocking stream socket: bytes to send wait in a queue, received bytes in a
/// buffer, and `progress` moves both. A connection that fails or receives invalid data is closed
/// and keeps the reason.
///
/// Units:   bytes. Threads: one.
/// Errors:  none thrown; see `is_open` and `why_closed`.
class TcpConnection {
 public:
  struct Frame {
    TcpFrameKind kind = TcpFrameKind::kData;
    std::string payload;
  };

  /// Takes over a connected, non-blocking socket. Frames longer than `max_frame_bytes` are invalid.
  TcpConnection(FileDescriptor socket, std::size_t max_frame_bytes);

  bool is_open() const { return static_cast<bool>(socket_); }
  const std::string& why_closed() const { return why_closed_; }
  /// "address:port" of the other end, for messages.
  const std::string& peer_name() const { return peer_name_; }
  int fd() const { return socket_.get(); }

  /// Queues bytes and sends as many as the kernel accepts now.
  void send(std::string_view bytes);
  bool has_unsent() const { return unsent_ < out_.size(); }

  /// Sends and receives as much as possible without blocking.
  void progress();

  /// Received bytes that have not been taken.
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
  std::size_t unsent_ = 0;  // Offset of the first byte of out_ that the kernel has not accepted.
};

/// Waits until `listener` (if valid) or an open connection is ready, or until `until`, and then
/// calls `progress` on the connections. Returns whether the listener has a new connection. Errors:
/// KoloError(kIo) if poll fails.
bool progress_until(TimePoint until, int listener, std::span<TcpConnection* const> connections);

/// Sends `error` to all and waits, at most about a second, until they have closed. If the socket
/// were closed earlier, peers that are still sending could lose the error.
void close_with_error(const Error& error, std::span<TcpConnection* const> connections);

}  // namespace kolo
