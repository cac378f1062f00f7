#pragma once

#include <unistd.h>

#include <utility>

namespace kolo {

/// Owns one C handle, which the destructor closes. Move-only. `Traits` provides `Value`, `static
/// Value invalid()` and `static void close(Value) noexcept`.
template <typename Traits>
class UniqueHandle {
 public:
  using Value = typename Traits::Value;

  UniqueHandle() = default;
  explicit UniqueHandle(Value value) : value_(value) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : value_(std::exchange(other.value_, Traits::invalid())) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, Traits::invalid());
    }
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  Value get() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ != Traits::invalid(); }
  Value release() noexcept { return std::exchange(value_, Traits::invalid()); }
  void reset() noexcept {
    if (*this) Traits::close(std::exchange(value_, Traits::invalid()));
  }

 private:
  Value value_ = Traits::invalid();
};

struct FileDescriptorTraits {
  using Value = int;
  static Value invalid() noexcept { return -1; }
  static void close(Value fd) noexcept { ::close(fd); }
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

}  // namespace kolo
