#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Tokens one after the other, little-endian, in memory that `owner` keeps.
struct TokenArray {
  std::span<const std::byte> bytes;
  std::size_t width;  ///< Bytes of a token: 1, 2 or 4. Divides the number of bytes.
  std::shared_ptr<const void> owner;
  std::filesystem::path file = {};  ///< Where they come from, for errors.
  std::size_t offset = 0;           ///< Of the first one, in the file.

  std::size_t size() const { return bytes.size() / width; }
};

/// Adjacent windows of `context` tokens without overlap, in each of several arrays; the target of a
/// token is the next one. Tokens at the end of an array that fill no window are left out.
///
/// Format: that of `token_windows`.
class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::vector<TokenArray> arrays, std::size_t vocabulary, std::size_t context);

  std::size_t size() const override { return first_windows_.back(); }
  const SampleFormat& format() const override { return format_; }
  /// Errors: KoloError(kData) naming file and offset of a token outside of the vocabulary.
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  void copy_tokens(const TokenArray& array, std::size_t begin, std::span<std::int32_t> into) const;

  std::vector<TokenArray> arrays_;
  std::vector<std::size_t> first_windows_;  // of each array, and the number of all
  std::size_t vocabulary_;
  std::size_t context_;
  SampleFormat format_;
};

/// "tokens" and "next", int32 [context] below `vocabulary`.
SampleFormat token_windows(std::size_t vocabulary, std::size_t context);

}  // namespace kolo::trainer
