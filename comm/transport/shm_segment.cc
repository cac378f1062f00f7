#include "comm/transport/shm_segment.h"

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

}  // namespace kolo
