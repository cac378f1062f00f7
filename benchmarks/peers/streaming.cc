#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/common/exchange.h"
#include "benchmarks/common/streaming_kernels.h"
#include "benchmarks/peers/peers.h"
#include "comm/algorithms/chunking.h"
#include "comm/base/aligned_memory.h"
#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/transport/arena.h"

namespace kolo::bench {
namespace {

/// Time for which a thread of the runtime may still poll after a barrier.
constexpr std::chrono::microseconds kRest{200};

/// Maps equally large memory of each rank of a job on one node. All ranks map all of it. `bytes` is
/// a multiple of the page size; pages are not committed. Collective; `name` must be new for every
/// call. Errors: the errors of `Arena`; KoloError(kIo) if a rank may not open a peer's memory.
std::vector<Arena> map_arenas(Runtime& runtime, std::string_view name, std::size_t bytes) {
  const auto own = static_cast<std::size_t>(runtime.rank());
  std::vector<Arena> arenas;
  Arena mine = Arena::create(bytes);
  const std::vector<std::string> paths =
      all_gather(runtime, name, fmt::format("/proc/{}/fd/{}", ::getpid(), mine.fd()));
  for (std::size_t rank = 0; rank < paths.size(); ++rank) {
    if (rank == own) {
      arenas.push_back(std::move(mine));
      continue;
    }
    FileDescriptor fd(::open(paths[rank].c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) {
      throw KoloError({.code = ErrorCode::kIo,
                       .what = fmt::format("cannot map the memory of rank {}: {}: {}", rank,
                                           paths[rank], std::generic_category().message(errno))});
    }
    arenas.push_back(Arena::adopt(std::move(fd), bytes));
  }
  runtime.barrier().wait();  // until all ranks have opened all arenas
  return arenas;
}

/// One sum, or copy, of whole floats.
struct Stream {
  std::vector<const float*> in = {};
  std::vector<float*> out = {};
  std::size_t count = 0;
};

/// The contributions and results of all ranks of a node for one case, in memory that all ranks have
/// mapped. Threads: the main thread.
class CaseMemory {
 public:
  /// Collective; `name` must be new for every call. Errors: the errors of `map_arenas`.
  CaseMemory(Runtime& runtime, std::string_view name, const CollectiveCase& what)
      : rank_(runtime.rank()),
        ranks_(runtime.world_size()),
        is_in_place_(what.in_place),
        bytes_of_element_(size_of(what.dtype)),
        spec_(what.spec(ranks_)),
        begins_(begins()),
        arenas_(map_arenas(runtime, name, 2 * begins_.back())) {
    for (std::size_t i = 0; i < spec_.size(); ++i) {
      const std::size_t bytes = begins_[i + 1] - begins_[i];
      if (spec_.part(i).contributes(rank_)) own().commit(begins_[i], bytes);
      if (spec_.part(i).receives(rank_)) own().commit(result_at(i), bytes);
    }
  }

  /// Copies the contribution of this rank to the mapped memory.
  void write(const std::byte* elements) {
    for (std::size_t i = 0; i < spec_.size(); ++i) {
      if (!spec_.part(i).contributes(rank_)) continue;
      const std::size_t bytes = spec_.part(i).extent.count * bytes_of_element_;
      std::memcpy(own().data() + begins_[i], elements, bytes);
      elements += bytes;
    }
  }

  /// Returns the work of `rank`: its share of the common sum, or the data that it receives.
  std::vector<Stream> streams(int rank) const {
    std::vector<Stream> all;
    for (std::size_t i = 0; i < spec_.size(); ++i) {
      const CollectiveSpec::Part part = spec_.part(i);
      Extent floats{0, part.extent.count * bytes_of_element_ / sizeof(float)};
      const bool is_shared = part.sums() && spec_.size() == 1;
      if (is_shared) {
        floats = part_of(floats, static_cast<std::size_t>(ranks_), static_cast<std::size_t>(rank),
                         DType::kFloat32);
        all.push_back(stream(i, part.receivers, floats));
      } else if (part.receives(rank)) {
        all.push_back(stream(i, RankRange::one(rank), floats));
      }
    }
    std::erase_if(all, [](const Stream& each) {
      return each.count == 0 || (each.in.size() == 1 && each.in[0] == each.out[0]);
    });
    return all;
  }

 private:
  /// Returns the offset of each part, and the end of the last. A cache line separates parts, so
  /// that they do not use the same sets of a cache.
  std::vector<std::size_t> begins() const {
    std::vector<std::size_t> all{0};
    for (const CollectiveSpec::Part& part : spec_.parts()) {
      const std::size_t lines = part.extent.count * bytes_of_element_ / kMemoryAlignment;
      all.push_back(all.back() + (lines + 2) * kMemoryAlignment);
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    all.back() = (all.back() + page - 1) / page * page;
    return all;
  }

  Arena& own() { return arenas_[static_cast<std::size_t>(rank_)]; }

  std::size_t result_at(std::size_t part) const {
    return (is_in_place_ ? 0 : begins_.back()) + begins_[part];
  }

  Stream stream(std::size_t part, const RankRange& targets, const Extent& floats) const {
    const auto at = [&](int rank, std::size_t begin) {
      return reinterpret_cast<float*>(arenas_[static_cast<std::size_t>(rank)].data() + begin) +
             floats.offset;
    };
    Stream stream{.count = floats.count};
    for (const int rank : spec_.part(part).contributors) {
      stream.in.push_back(at(rank, begins_[part]));
    }
    for (const int rank : targets) stream.out.push_back(at(rank, result_at(part)));
    return stream;
  }

  int rank_, ranks_;
  bool is_in_place_;
  std::size_t bytes_of_element_;
  CollectiveSpec spec_;
  std::vector<std::size_t> begins_;
  std::vector<Arena> arenas_;  // by rank
};

/// Runs the copies and sums of a case. Threads: the main thread. Errors: those of the runtime.
class StreamingRun final : public CollectiveRun {
 public:
  StreamingRun(Runtime& runtime, std::shared_ptr<CaseMemory> memory, Stores stores)
      : runtime_(runtime), memory_(std::move(memory)), stores_(stores) {
    const int ranks = runtime.local_size();
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const int workers = std::min(ranks, cores);
    const int me = runtime.local_rank();
    for (int rank = me; me < workers && rank < ranks; rank += workers) {
      for (Stream& stream : memory_->streams(rank)) streams_.push_back(std::move(stream));
    }
  }

  void write(const void* elements) override {
    memory_->write(static_cast<const std::byte*>(elements));
  }
  void read(void*) override {}
  void read_contribution(void*) override {}
  /// Waits until all ranks have called it and the runtime's threads sleep.
  void align() override {
    runtime_.barrier().wait();
    const auto begin = std::chrono::steady_clock::now() + kRest;
    while (!streams_.empty() && std::chrono::steady_clock::now() < begin) {
    }
  }
  void run() override {
    for (const Stream& stream : streams_) {
      streaming_sum(stream.in, stream.out, stream.count, stores_);
    }
  }
  std::string algorithm() const override {
    return stores_ == Stores::kCached ? "memory" : "memory, past caches";
  }

 private:
  Runtime& runtime_;
  std::shared_ptr<CaseMemory> memory_;
  Stores stores_;
  std::vector<Stream> streams_;
};

class StreamingSystem final : public CollectiveSystem {
 public:
  explicit StreamingSystem(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "streaming"; }
  bool sums() const override { return false; }
  bool covers(std::size_t bytes) const override { return bytes >= kLeastBoundBytes; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kUser, "streaming is measured in host memory; leave streaming out");
    const auto memory =
        std::make_shared<CaseMemory>(runtime_, fmt::format("streaming {}", ++cases_), what);
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      runs.push_back(std::make_unique<StreamingRun>(runtime_, memory, stores));
    }
    return runs;
  }

 private:
  Runtime& runtime_;
  int cases_ = 0;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_streaming_reference(Runtime& runtime) {
  if (runtime.num_nodes() == 1) return std::make_unique<StreamingSystem>(runtime);
  refuse(
      "streaming is measured inside one node; between nodes compare with "
      "limit");
}

}  // namespace kolo::bench
