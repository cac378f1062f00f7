#include "trainer/tokens/token_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace kolo::trainer {
namespace {

template <typename T>
std::vector<std::byte> narrow_tokens(std::span<const std::int32_t> tokens) {
  std::vector<std::byte> bytes(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<T>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof token, &token, sizeof token);
  }
  return bytes;
}

}  // namespace

TokenWriter::TokenWriter(Options options) : options_(std::move(options)) {}

void TokenWriter::write(std::span<const std::int32_t> tokens) {
  while (!tokens.empty()) {
    if (!file_) {
      shards_.push_back({.file = fmt::format("{}-{:05}.bin", options_.part, shards_.size())});
      file_.emplace(options_.folder / shards_.back().file);
    }
    const auto room = options_.shard_tokens - shards_.back().tokens;
    const auto now = tokens.first(std::min<std::size_t>(tokens.size(), room));
    file_->write(options_.width == 2 ? narrow_tokens<std::uint16_t>(now)
                                     : narrow_tokens<std::uint32_t>(now));
    shards_.back().tokens += now.size();
    tokens_ += now.size();
    tokens = tokens.subspan(now.size());
    if (shards_.back().tokens == options_.shard_tokens) finish_shard();
  }
}

std::vector<TokenFolder::Shard> TokenWriter::finish() {
  if (file_) finish_shard();
  return shards_;
}

void TokenWriter::finish_shard() {
  shards_.back().xxh3 = file_->finish().xxh3;
  file_.reset();
}

}  // namespace kolo::trainer
