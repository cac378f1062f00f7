#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/error.h"

namespace kolo {

/// Appends encoded values to a byte vector: little-endian numbers; texts and lists after their
/// length.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& bytes) : bytes_(bytes) {}

  template <std::unsigned_integral Number>
  void number(Number value) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF));
    }
  }
  void rank(int value) { number(static_cast<std::uint32_t>(value)); }
  void text(const std::string& value) {
    number(narrow<std::uint32_t>(value.size()));
    for (char c : value) bytes_.push_back(static_cast<std::byte>(c));
  }
  void payload(std::span<const std::byte> value) {
    number(narrow<std::uint32_t>(value.size()));
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }

 private:
  std::vector<std::byte>& bytes_;
};

/// Reads the output of `ByteWriter`. A read beyond the end, or of an invalid value, makes `ok()`
/// false; later reads return 0 or empty values. Nothing is read or allocated beyond the input.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

  template <std::unsigned_integral Number>
  Number number() {
    if (!take(sizeof(Number))) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value |= static_cast<std::uint64_t>(taken_[i]) << (8 * i);
    }
    return static_cast<Number>(value);
  }
  int rank() { return static_cast<int>(number<std::uint32_t>()); }
  std::span<const std::byte> payload() {
    return take(number<std::uint32_t>()) ? taken_ : std::span<const std::byte>();
  }
  std::string text() {
    const std::span<const std::byte> bytes = payload();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Reads an enumerator. Fails unless it is one of `values`.
  template <typename Values>
  auto choice(const Values& values) {
    const auto chosen = static_cast<std::decay_t<decltype(values[0])>>(number<std::uint8_t>());
    ok_ = ok_ && std::ranges::find(values, chosen) != std::end(values);
    return ok_ ? chosen : values[0];
  }
  /// Reads the length of a list whose elements take at least `least_bytes` bytes each. Fails if too
  /// few bytes remain.
  std::size_t list(std::size_t least_bytes) {
    const std::size_t count = number<std::uint32_t>();
    if (count > bytes_.size() / least_bytes) ok_ = false;
    return ok_ ? count : 0;
  }

 private:
  bool take(std::size_t count) {
    ok_ = ok_ && count <= bytes_.size();
    if (!ok_) return false;
    taken_ = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return true;
  }

  std::span<const std::byte> bytes_, taken_;
  bool ok_ = true;
};

/// Writes all fields of an error except `logged`.
inline void write_error(ByteWriter& writer, const Error& error) {
  writer.number(static_cast<std::uint8_t>(error.code));
  writer.rank(error.rank);
  writer.rank(error.peer);
  writer.text(error.group);
  writer.text(error.verb);
  writer.text(error.bucket);
  writer.text(error.what);
}

/// Reads an error. Returns an empty value if the error code is invalid.
inline std::optional<Error> read_error(ByteReader& reader) {
  const auto code = reader.number<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(kLastErrorCode)) return std::nullopt;
  Error error;
  error.code = static_cast<ErrorCode>(code);
  error.rank = reader.rank();
  error.peer = reader.rank();
  error.group = reader.text();
  error.verb = reader.text();
  error.bucket = reader.text();
  error.what = reader.text();
  return error;
}

}  // namespace kolo
