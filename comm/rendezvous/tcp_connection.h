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

/// The protocol of the TCP rendezvous; all numbers are little-endian.
///
///   client -> server   hello    magic u64 | version u32 | rank u32 | size u32 | 0 u32 | job u64
///   server -> client   welcome  (when all ranks have joined)
///   client -> server   data     contribution of this rank
///   server -> client   data     contributions of all ranks: for each, length u64, bytes
///   server -> client   error    code u32 | rank u32 | peer u32 | sentence
///
/// Every message except the hello is a frame: kind u32 | 0 u32 | length u64 | length bytes. The
/// hello has the same layout in every version, so that a server recognises another version.

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
/// Whether these bytes can be the beginning of a hello.
bool may_be_hello(std::string_view first_bytes);
/// Decodes exactly kHelloBytes bytes; returns nothing if they are not a hello.
std::optional<Hello> decode_hello(std::string_view bytes);

/// Returns the 64-bit FNV-1a hash. Source: RFC 9923.
std::uint64_t hash_job_id(std::string_view job_id);

enum class TcpFrameKind : std::uint32_t { kWelcome = 1, kData = 2, kError = 3 };

struct FrameHeader {
  TcpFrameKind kind = TcpFrameKind::kData;
  std::uint64_t length = 0;
};

std::string encode_frame(TcpFrameKind kind, std::string_view payload);
/// Decodes a frame header from at least kFrameHeaderBytes bytes. Returns nothing if the kind is
/// unknown.
std::optional<FrameHeader> decode_frame_header(std::string_view bytes);

std::string encode_gathered(const std::vector<std::string>& contributions);
/// Returns nothing unless `payload` holds exactly `size` contributions.
std::optional<std::vector<std::string>> decode_gathered(std::string_view payload, int size);

std::string encode_error(const Error& error);
/// Returns nothing if `payload` is too short or its code is unknown. Verb and bucket are not
/// transferred.
std::optional<Error> decode_error(std::string_view payload);

/// One end of a non-blocking stream socket, with a queue of bytes to send and a buffer of received
/// bytes; `progress` moves both. If the connection fails or receives invalid data, it is closed and
/// `why_closed` returns the reason.
///
/// Units:   bytes. Threads: one.
/// Errors:  none thrown; see `is_open` and `why_closed`.
class TcpConnection {
 public:
  struct Frame {
    TcpFrameKind kind = TcpFrameKind::kData;
    std::string payload;
  };

  /// Takes ownership of a connected, non-blocking socket. Frames longer than `max_frame_bytes` are
  /// invalid.
  TcpConnection(FileDescriptor socket, std::size_t max_frame_bytes);

  bool is_open() const { return static_cast<bool>(socket_); }
  const std::string& why_closed() const { return why_closed_; }
  /// Returns "address:port" of the other end, for messages.
  const std::string& peer_name() const { return peer_name_; }
  int fd() const { return socket_.get(); }

  /// Queues bytes and sends as many as the kernel accepts now.
  void send(std::string_view bytes);
  bool has_unsent() const { return unsent_ < out_.size(); }

  /// Sends and receives as much as possible without blocking.
  void progress();

  /// Returns received bytes that `take` has not removed.
  std::string_view arrived() const { return std::string_view(in_).substr(taken_); }
  /// Removes the first `bytes` of `arrived()`.
  void take(std::size_t bytes);
  /// Removes and returns the first frame, if it is complete; closes the connection if it is
  /// malformed.
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
  std::size_t unsent_ = 0;  // offset of the first byte of out_ that the kernel has not accepted
};

/// Waits until `listener` (if not negative) or an open connection is ready, or until `until`; then
/// calls `progress` on the ready connections. Returns whether the listener has a new connection.
/// Errors: KoloError(kIo) if poll fails.
bool progress_until(TimePoint until, int listener, std::span<TcpConnection* const> connections);

/// Sends `error` on all connections and waits until the peers have closed them, at most about a
/// second. If this end closed earlier, peers that are still sending could lose the error.
void close_with_error(const Error& error, std::span<TcpConnection* const> connections);

}  // namespace kolo
