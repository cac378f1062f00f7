#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/error.h"

namespace kolo {

/// Writes state to the bytes of a file, in the byte order of this machine.
class StateWriter {
 public:
  void number(std::uint64_t value) { raw(&value, sizeof(value)); }
  void text(std::string_view value) {
    number(value.size());
    raw(value.data(), value.size());
  }
  void floats(std::span<const float> values) {
    number(values.size());
    raw(values.data(), values.size_bytes());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void raw(const void* data, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  std::vector<std::byte> bytes_;
};

/// Reads state in the order of its writing. Errors: KoloError(kData) if the bytes end too early.
class StateReader {
 public:
  /// `what` is the name of the state, for errors.
  StateReader(std::string_view what, std::span<const std::byte> bytes)
      : what_(what), left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, raw(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string text() {
    const auto bytes = raw(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<float> floats() {
    const std::uint64_t count = number();
    if (count > left_.size() / sizeof(float)) fail("truncated");
    const auto bytes = raw(count * sizeof(float));
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  /// Returns the bytes that are not read yet.
  std::span<const std::byte> rest() const { return left_; }

  [[noreturn]] void fail(std::string_view what) const {
    throw KoloError(
        {.code = ErrorCode::kData, .what = std::string(what_) + ": " + std::string(what)});
  }

 private:
  std::span<const std::byte> raw(std::uint64_t bytes) {
    if (bytes > left_.size()) fail("truncated");
    const auto part = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return part;
  }
  std::string_view what_;
  std::span<const std::byte> left_;
};

}  // namespace kolo
