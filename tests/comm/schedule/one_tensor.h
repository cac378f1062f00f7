#pragma once

#include <algorithm>
#include <cstddef>

#include "comm/schedule/packer.h"

namespace kolo::test {

/// A packer of one float32 tensor for results and one for contributions. Each pointer is the
/// (virtual) address of element 0 of the bucket.
class OneTensor final : public Packer {
 public:
  OneTensor(float* data, const float* input) : data_(data), input_(input) {}

  void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) override {
    std::copy_n(input_ + offset, count, static_cast<float*>(bucket));
    packed_ += count;
    if (stores == Stores::kStreaming) streamed_ += count;
  }
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores) override {
    std::copy_n(static_cast<const float*>(bucket), count, data_ + offset);
    unpacked_ += count;
  }
  Piece piece(std::size_t offset, std::size_t count) override {
    return {.data = reinterpret_cast<std::byte*>(data_ + offset),
            .input = reinterpret_cast<const std::byte*>(input_ + offset),
            .count = count};
  }
  /// Returns the number of elements copied to staging slots.
  std::size_t packed() const { return packed_; }
  /// Returns the number of elements copied to the tensor from memory outside this rank's tensors.
  std::size_t unpacked() const { return unpacked_; }
  /// Returns the number of elements copied to slots by streaming stores.
  std::size_t streamed() const { return streamed_; }

 private:
  float* data_;
  const float* input_;
  std::size_t packed_ = 0, unpacked_ = 0, streamed_ = 0;
};

}  // namespace kolo::test
