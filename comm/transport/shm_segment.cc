#include "comm/transport/shm_segment.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "comm/base/byte_codec.h"

namespace kolo {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kSegmentPage = 4096;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

ShmLayout::ShmLayout(const TransportLimits& limits, std::size_t local_size)
    : data_bytes_(limits.arena_bytes) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  error_ = round_up(sizeof(Doorbell), kCacheLine);
  flags_ = round_up(error_ + sizeof(ErrorCell), kCacheLine);
  counters_ = round_up(flags_ + local_size * (limits.flags_per_peer + 1) * kWord, kCacheLine);
  rings_ = round_up(counters_ + limits.counters * kWord, kCacheLine);
  data_ = round_up(rings_ + local_size * kRingPairBytes, kSegmentPage);
  total_ = round_up(data_ + data_bytes_, kSegmentPage);
}

namespace {

std::vector<std::byte> error_bytes(const Error& error) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  write_error(writer, error);
  return bytes;
}

}  // namespace

void ErrorCell::write(const Error& error) {
  State expected = State::kEmpty;
  if (!state_.compare_exchange_strong(expected, State::kBeingWritten)) return;
  std::vector<std::byte> bytes = error_bytes(error);
  if (bytes.size() > kMostBytes) {
    Error shorter = error;
    for (std::string* text : {&shorter.what, &shorter.bucket, &shorter.group, &shorter.verb}) {
      const std::size_t excess = bytes.size() - std::min(bytes.size(), kMostBytes);
      text->resize(text->size() - std::min(text->size(), excess));
      bytes = error_bytes(shorter);
    }
  }
  std::ranges::copy(bytes, bytes_.begin());
  size_ = narrow<std::uint32_t>(bytes.size());
  state_.store(State::kWritten, std::memory_order_release);
}

std::optional<Error> ErrorCell::read() const {
  const std::size_t size = is_written() ? size_ : 0;
  if (size > kMostBytes) return std::nullopt;
  ByteReader reader{std::span(bytes_).first(size)};
  std::optional<Error> error = read_error(reader);
  if (!error || !reader.ok() || !reader.at_end()) return std::nullopt;
  return error;
}

void ErrorCell::note_stuck(std::string_view verb) {
  std::array<char, kVerbBytes> letters{};
  std::ranges::copy(verb.substr(0, kVerbBytes), letters.begin());
  stuck_in_.store(std::bit_cast<std::uint64_t>(letters), std::memory_order_relaxed);
}

std::string ErrorCell::stuck_in() const {
  const auto verb =
      std::bit_cast<std::array<char, kVerbBytes>>(stuck_in_.load(std::memory_order_relaxed));
  return {verb.begin(), std::ranges::find(verb, '\0')};
}

}  // namespace kolo
