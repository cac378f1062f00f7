#include "benchmarks/peers/memory_limit.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/base/aligned_memory.h"

namespace kolo::bench {
namespace {

/// A thread of the runtime may look for work for a moment longer, on a core that is measured here.
constexpr std::chrono::microseconds kRest{200};

}  // namespace

MemoryLimit::MemoryLimit(Runtime& runtime, const AllReduceCase& what, Stores stores)
    : runtime_(runtime), stores_(stores), bytes_(what.bytes) {
  const auto ranks = static_cast<std::size_t>(runtime.local_size());
  const auto me = static_cast<std::size_t>(runtime.local_rank());
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  part_count_ = (what.bytes / sizeof(float) + ranks - 1) / ranks;
  stride_ = (part_count_ * sizeof(float) / kMemoryAlignment + 1) * kMemoryAlignment;
  const std::size_t workers = std::min(ranks, cores);
  for (std::size_t rank = me; me < workers && rank < ranks; rank += workers) {
    Streams streams;
    streams.contribution = StreamMemory(ranks * stride_);
    if (!what.in_place) streams.sum = StreamMemory(ranks * stride_);
    std::byte* const target = what.in_place ? streams.contribution.data() : streams.sum.data();
    for (std::size_t part = 0; part < ranks; ++part) {
      streams.in.push_back(
          reinterpret_cast<const float*>(streams.contribution.data() + part * stride_));
      streams.out.push_back(reinterpret_cast<float*>(target + part * stride_));
    }
    streams_.push_back(std::move(streams));
  }
}

void MemoryLimit::write(const void* elements) {
  const std::size_t part_bytes = part_count_ * sizeof(float);
  for (const Streams& streams : streams_) {
    std::size_t offset = 0;
    for (std::byte* part = streams.contribution.data(); offset < bytes_; part += stride_) {
      const std::size_t bytes = std::min(part_bytes, bytes_ - offset);
      std::memcpy(part, static_cast<const std::byte*>(elements) + offset, bytes);
      offset += bytes;
    }
  }
}

void MemoryLimit::align() {
  runtime_.barrier();
  const auto begin = std::chrono::steady_clock::now() + kRest;
  while (!streams_.empty() && std::chrono::steady_clock::now() < begin) {
  }
}

void MemoryLimit::run() {
  for (const Streams& streams : streams_) {
    streaming_sum(streams.in, streams.out, part_count_, stores_);
  }
}

}  // namespace kolo::bench
