#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/error.h"

namespace kolo {

/// Bytes on the wire of the TCP rendezvous; all numbers are little-endian.
///
///   client -> server   hello    magic u64 | version u32 | rank u32 | size u32 | 0 u32 | job u64
///   server -> client   welcome  (when all have joined)
///   client -> server   data     what this rank gives
///   server -> client   data     what all gave: per rank length u64, bytes
///   server -> client   error    code u32 | rank u32 | peer u32 | sentence
///
/// All but the hello are frames: kind u32 | 0 u32 | length u64 | length bytes. The hello has this
/// layout in every version, so that another version is recognised.

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
/// Whether the first bytes, as many as there are, can begin a hello.
bool may_be_hello(std::string_view first_bytes);
/// From exactly kHelloBytes. Empty unless it is a hello.
std::optional<Hello> decode_hello(std::string_view bytes);

/// FNV-1a, 64 bits. Source: RFC 9923.
std::uint64_t hash_job_id(std::string_view job_id);

enum class TcpFrameKind : std::uint32_t { kWelcome = 1, kData = 2, kError = 3 };

struct FrameHeader {
  TcpFrameKind kind = TcpFrameKind::kData;
  std::uint64_t length = 0;
};

std::string encode_frame(TcpFrameKind kind, std::string_view payload);
/// From at least kFrameHeaderBytes. Empty for an unknown kind.
std::optional<FrameHeader> decode_frame_header(std::string_view bytes);

std::string encode_gathered(const std::vector<std::string>& contributions);
/// Empty unless `payload` holds exactly `size` contributions.
std::optional<std::vector<std::string>> decode_gathered(std::string_view payload, int size);

std::string encode_error(const Error& error);
/// Empty if `payload` is too short or the code unknown. Verb and bucket do not travel.
std::optional<Error> decode_error(std::string_view payload);

}  // namespace kolo
