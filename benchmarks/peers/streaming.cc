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
      : runtime_(runtime), stores_(stores) {
    const int ranks = runtime.local_size();
    const int me = runtime.local_rank();
    bytes_ = counts_of(what, me, ranks).contributed * size_of(what.dtype);
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const int workers = std::min(ranks, cores);
    for (int rank = me; me < workers && rank < ranks; rank += workers) {
      streams_.push_back(make_streams(what, rank, ranks));
    }
  }

  void write(const void* elements) override {
    for (const Streams& streams : streams_) {
      const std::size_t bytes = streams.count * sizeof(float);
      for (std::size_t i = 0; i < streams.in.size(); ++i) {
        std::byte* const stream = streams.contribution.data() + i * stride(streams.count);
        for (std::size_t at = 0; bytes_ > 0 && at < bytes; at += bytes_) {
          std::memcpy(stream + at, elements, std::min(bytes_, bytes - at));
        }
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
      streaming_sum(streams.in, streams.out, streams.count, stores_);
    }
  }
  std::string algorithm() const override {
    return stores_ == Stores::kCached ? "memory" : "memory, past caches";
  }

 private:
  /// The streams of one rank.
  struct Streams {
    std::size_t count = 0;  ///< Floats per stream.
    HostMemory contribution;
    HostMemory result;  ///< Null in place.
    std::vector<const float*> in;
    std::vector<float*> out;
  };

  /// Bytes from one stream to the next: one line more than a stream, so that they do not map to the
  /// same sets of a cache.
  static std::size_t stride(std::size_t count) {
    return (count * sizeof(float) / kMemoryAlignment + 1) * kMemoryAlignment;
  }

  static Streams make_streams(const CollectiveCase& what, int rank, int ranks) {
    const auto parts = static_cast<std::size_t>(ranks);
    const bool sums = reduces(what.verb);
    const std::size_t sources = sums ? parts : 1;
    const std::size_t targets = what.verb == Verb::kAllReduce ? parts : 1;
    const CaseCounts counts = counts_of(what, rank, ranks);
    // In place, what a rank contributes is there.
    const std::size_t received =
        counts.received - (what.in_place && !sums ? counts.contributed : 0);
    Streams streams;
    streams.count = sums ? (what.bytes / sizeof(float) + parts - 1) / parts
                         : received * size_of(what.dtype) / sizeof(float);
    const bool is_in_place = what.in_place && sums;
    streams.contribution = HostMemory(sources * stride(streams.count));
    if (!is_in_place) streams.result = HostMemory(targets * stride(streams.count));
    std::byte* const source = streams.contribution.data();
    std::byte* const target = is_in_place ? source : streams.result.data();
    for (std::size_t i = 0; i < sources; ++i) {
      streams.in.push_back(reinterpret_cast<const float*>(source + i * stride(streams.count)));
    }
    for (std::size_t i = 0; i < targets; ++i) {
      streams.out.push_back(reinterpret_cast<float*>(target + i * stride(streams.count)));
    }
    return streams;
  }

  Runtime& runtime_;
  Stores stores_;
  std::size_t bytes_ = 0;  ///< Of the contribution.
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
