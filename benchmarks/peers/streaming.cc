#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/common/host_memory.h"
#include "benchmarks/peers/peer_systems.h"
#include "benchmarks/peers/streaming_sum.h"
#include "comm/base/aligned_memory.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

/// Time for which a thread of the runtime may poll after a barrier, on a core that is measured.
constexpr std::chrono::microseconds kRest{200};

/// Threads: the main thread. Errors: those of the runtime.
class StreamingRun final : public CollectiveRun {
 public:
  StreamingRun(Runtime& runtime, const CollectiveCase& what, Stores stores)
      : runtime_(runtime), stores_(stores), bytes_(what.bytes) {
    const auto ranks = static_cast<std::size_t>(runtime.local_size());
    const auto me = static_cast<std::size_t>(runtime.local_rank());
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    part_count_ = (what.bytes / sizeof(float) + ranks - 1) / ranks;
    // One line more than a part, so that streams do not map to the same sets of a cache.
    stride_ = (part_count_ * sizeof(float) / kMemoryAlignment + 1) * kMemoryAlignment;
    const std::size_t workers = std::min(ranks, cores);
    for (std::size_t rank = me; me < workers && rank < ranks; rank += workers) {
      streams_.push_back(make_streams(ranks, what.in_place));
    }
  }

  void write(const void* elements) override {
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
  void read(void*) override {}
  void read_contribution(void*) override {}
  /// Returns when all ranks have arrived and the runtime's own threads sleep.
  void align() override {
    runtime_.barrier();
    const auto begin = std::chrono::steady_clock::now() + kRest;
    while (!streams_.empty() && std::chrono::steady_clock::now() < begin) {
    }
  }
  void run() override {
    for (const Streams& streams : streams_) {
      streaming_sum(streams.in, streams.out, part_count_, stores_);
    }
  }
  std::string algorithm() const override {
    return stores_ == Stores::kCached ? "memory" : "memory, past caches";
  }

 private:
  /// The streams of one rank.
  struct Streams {
    HostMemory contribution;
    HostMemory sum;  ///< Null in place.
    std::vector<const float*> in;
    std::vector<float*> out;
  };

  Streams make_streams(std::size_t ranks, bool in_place) const {
    Streams streams;
    streams.contribution = HostMemory(ranks * stride_);
    if (!in_place) streams.sum = HostMemory(ranks * stride_);
    std::byte* const source = streams.contribution.data();
    std::byte* const target = in_place ? source : streams.sum.data();
    for (std::size_t part = 0; part < ranks; ++part) {
      streams.in.push_back(reinterpret_cast<const float*>(source + part * stride_));
      streams.out.push_back(reinterpret_cast<float*>(target + part * stride_));
    }
    return streams;
  }

  Runtime& runtime_;
  Stores stores_;
  std::size_t bytes_;           ///< Of the contribution.
  std::size_t part_count_ = 0;  ///< Floats per stream.
  std::size_t stride_ = 0;      ///< Bytes from one stream to the next.
  std::vector<Streams> streams_;
};

class StreamingSystem final : public CollectiveSystem {
 public:
  explicit StreamingSystem(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "streaming"; }
  bool sums() const override { return false; }
  bool covers(std::size_t bytes) const override { return bytes >= kLeastBoundBytes; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kUser, "streaming is measured in host memory; leave streaming out");
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      runs.push_back(std::make_unique<StreamingRun>(runtime_, what, stores));
    }
    return runs;
  }

 private:
  Runtime& runtime_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_streaming_reference(Runtime& runtime) {
  if (runtime.num_nodes() == 1) return std::make_unique<StreamingSystem>(runtime);
  throw KoloError({.code = ErrorCode::kConfig,
                   .what = "streaming is measured inside one node; between nodes compare with "
                           "limit"});
}

}  // namespace kolo::bench
