#include "comm/network/out_of_band_abort.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

constexpr std::size_t kKeyBytes = 16;
/// Time after which a visitor that sends nothing is dropped.
constexpr int kSilentVisitorSeconds = 5;

std::string listener_key() {
  std::string key(kKeyBytes, '\0');
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    throw KoloError({.code = ErrorCode::kIo, .what = "getrandom gave no random bytes"});
  }
  return key;
}

std::vector<std::byte> knock_bytes(const std::string& key, const Error& error) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.text(key);
  write_error(writer, error);
  return bytes;
}

/// Decodes the bytes of a visitor. Returns an empty value without the key or an error.
std::optional<Error> read_knock(std::span<const std::byte> bytes, const std::string& key) {
  ByteReader reader(bytes);
  if (reader.text() != key) return std::nullopt;
  std::optional<Error> error = read_error(reader);
  return reader.ok() && reader.at_end() ? std::move(error) : std::nullopt;
}

}  // namespace

OutOfBandAbort::OutOfBandAbort(std::string host)
    : host_(std::move(host)), key_(listener_key()), listener_(listen_on(host_, 0)) {
  // The kernel reports a connection only when the visitor has sent data.
  const int seconds = kSilentVisitorSeconds;
  ::setsockopt(listener_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
}

std::string OutOfBandAbort::address() const {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.number(port_of(listener_.get()));
  writer.text(host_);
  writer.text(key_);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Error> OutOfBandAbort::answer() {
  for (;;) {
    const FileDescriptor visitor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!visitor) return std::nullopt;  // also if no descriptor is left
    std::array<std::byte, 2 * kMostBytes> bytes;
    const ssize_t count = ::recv(visitor.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) continue;
    auto error = read_knock(std::span(bytes).first(static_cast<std::size_t>(count)), key_);
    if (error) return error;
  }
}

bool OutOfBandAbort::knock(const std::string& address, const Error& error, TimePoint deadline) {
  ByteReader reader(std::as_bytes(std::span(address)));
  const auto port = reader.number<std::uint16_t>();
  const std::string host = reader.text();
  const std::string key = reader.text();
  if (!reader.ok()) return false;
  Error shorter = error;
  std::vector<std::byte> bytes = knock_bytes(key, shorter);
  for (std::string* text : {&shorter.what, &shorter.bucket, &shorter.group, &shorter.verb}) {
    const std::size_t excess = bytes.size() - std::min(bytes.size(), kMostBytes);
    text->resize(text->size() - std::min(text->size(), excess));
    bytes = knock_bytes(key, shorter);
  }
  std::string why;
  const FileDescriptor socket = connect_to(host, port, deadline, why);
  return socket && ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                       static_cast<ssize_t>(bytes.size());
}

}  // namespace kolo
