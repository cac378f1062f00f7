#include "comm/rendezvous/tcp_frame.h"

#include <concepts>

namespace kolo {
namespace {

constexpr std::string_view kFrameMagic = "KOLORDV\n";

template <std::unsigned_integral Number>
void put(std::string& out, Number number) {
  for (std::size_t byte = 0; byte < sizeof(Number); ++byte) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(number >> (8 * byte))));
  }
}

/// Takes one number from the front. Before: `in` holds at least sizeof(Number) bytes.
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

}  // namespace kolo
