#include <algorithm>
#include <array>
#include <vector>

#include "comm/kernels/reduce_kernels.h"
#include "comm/schedule/bucket_layout.h"
#include "runtime/calibration/probe.h"

namespace kolo {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::array<std::size_t, 4> kWorkingSets = {kMiB, 8 * kMiB, 32 * kMiB, 64 * kMiB};
/// Least bytes of a sample. Short passes are repeated, so that the clock's resolution and late
/// starts hardly affect a sample.
constexpr std::size_t kBytesPerSample = 4 * kMiB;
/// Number of kinds of samples: round trips, gathers, slots, two kinds of packed parts, and passes
/// over each working set. Each kind gets an equal part of the time left, so a slow kind takes time
/// from all later kinds alike.
constexpr int kParts = 5 + static_cast<int>(kWorkingSets.size());
/// Assumed limit of the growth of the time per byte of a pass in the next larger working set.
constexpr double kSlowerInALargerSet = 3;
constexpr int kTripSamples = 100;
/// Number of untimed passes, which map pages and fill caches.
constexpr int kPassWarmups = 2;
constexpr int kPassSamples = 5;
constexpr int kBucketWarmups = 2;
constexpr int kBucketSamples = 10;
/// Number of `flat` sums per sample. Several run in a row, as in a program, because one sum takes
/// less time than the waits of ranks that share cores.
constexpr int kGathersInARow = 8;
constexpr std::size_t kGatherBytes = std::size_t{64} << 10;
/// Size of a slot in bytes.
constexpr std::size_t kSlotBytes = std::size_t{512} << 10;

/// Measures on all ranks of a node at the same time. The time of each sample includes a round trip
/// at its begin and at its end, so it covers all ranks even if there are too few cores: a rank that
/// gets its core late does not seem fast. Only zeros are written, so the arena does not change.
class NodeProbe {
 public:
  NodeProbe(Transport& transport, const std::vector<int>& ranks, const ProbeLimits& limits,
            const ProbeTime& time)
      : transport_(transport),
        ranks_(ranks),
        meet_flag_(limits.transport.flags_per_peer - 1),
        leave_flag_(limits.transport.flags_per_peer - 2),
        clock_(time.clock),
        budget_(time.clock, time.end),
        wait_(transport, limits.connect_timeout, limits.shares_cores, ProbeWait::Polls::kWait),
        room_(limits.transport.arena_bytes) {}

  MemorySamples run() {
    samples_.ranks = static_cast<int>(ranks_.size());
    measure_trips();
    measure_gathers();
    measure_slots();
    measure_packing(Stores::kCached, samples_.packed);
    measure_packing(Stores::kStreaming, samples_.streamed);
    for (const std::size_t working_set : kWorkingSets) measure_passes(working_set);
    return std::move(samples_);
  }

 private:
  /// Returns when all ranks have called it equally often.
  void meet() {
    ++met_;
    for (int rank : ranks_) {
      if (rank != transport_.rank()) transport_.signal(rank, meet_flag_, met_);
    }
    const auto has_come = [&](int rank) {
      return rank == transport_.rank() || transport_.signalled(rank, meet_flag_) >= met_;
    };
    wait_.until([&] { return std::ranges::all_of(ranks_, has_come); },
                [&] { return *std::ranges::find_if_not(ranks_, has_come); });
  }

  /// Begins the time of the next kind of samples.
  void begin() { budget_.begin(parts_left_--); }

  /// Returns whether to take another sample, as the node's first rank decides by the time left.
  /// True for the first sample, number 0, and for the untimed samples before it.
  bool go_on(int sample) { return sample <= 0 || ask_leader(budget_.affords()); }

  /// Returns the value of `mine` on the node's first rank.
  bool ask_leader(bool mine) {
    const int leader = ranks_.front();
    asked_ += 2;
    if (transport_.rank() == leader) {
      for (int rank : ranks_) {
        if (rank != leader) transport_.signal(rank, leave_flag_, asked_ + (mine ? 0 : 1));
      }
      return mine;
    }
    wait_.until([&] { return transport_.signalled(leader, leave_flag_) >= asked_; },
                [&] { return leader; });
    return transport_.signalled(leader, leave_flag_) == asked_;
  }

  void measure_trips() {
    begin();
    for (int sample = 0; sample < kTripSamples && go_on(sample); ++sample) {
      meet();
      const Stopwatch watch(clock_);
      meet();
      samples_.trips_us.push_back(watch.us());
    }
  }

  /// Each rank sums its part of a bucket over all arenas, and writes it to all of them, as `direct`
  /// does.
  void measure_passes(std::size_t working_set) {
    const std::size_t ranks = ranks_.size();
    const std::size_t part = working_set / ranks / ranks / kWireAlignment * kWireAlignment;
    if (part == 0 || ranks * part > room_) return;
    begin();
    // Skip the largest working sets if mapping pages is slow.
    const bool fits = budget_.affords_in_all(least_us(working_set));
    if (working_set > kWorkingSets.front() && !ask_leader(fits)) return;
    const Stopwatch first(clock_);
    transport_.commit(0, ranks * part);
    const auto bytes = static_cast<double>(2 * ranks * ranks * part);  // read and written
    const std::size_t passes = std::max<std::size_t>(1, kBytesPerSample / working_set);
    for (int sample = -kPassWarmups; sample < kPassSamples && go_on(sample); ++sample) {
      const Stopwatch watch(clock_);
      meet();
      for (std::size_t pass = 0; pass < passes; ++pass) sum_part(part);
      meet();
      const double us = watch.us();
      if (sample == -kPassWarmups) fresh_us_ = first.us();
      pass_us_ = us / static_cast<double>(passes);
      if (sample < 0) continue;  // An untimed pass.
      samples_.own_passes.push_back({.working_set_bytes = static_cast<double>(working_set),
                                     .bytes = bytes * static_cast<double>(passes),
                                     .us = us});
    }
    passed_ = working_set;
  }

  /// Returns the predicted time until the first sample of a working set (mapping pages and two
  /// passes), extrapolated from the last working set.
  double least_us(std::size_t working_set) const {
    const double larger = static_cast<double>(working_set) / static_cast<double>(passed_);
    return larger * (fresh_us_ + kPassWarmups * kSlowerInALargerSet * pass_us_);
  }

  /// Each rank copies its operand and, after a round trip, sums all copies, as `flat` does. Two
  /// sets of copies alternate, so that no rank overwrites a copy that other ranks still read.
  void measure_gathers() {
    begin();
    if (ranks_.size() < 2 || 4 * kGatherBytes > room_) return;
    transport_.commit(0, 4 * kGatherBytes);
    samples_.gathers_in_a_row = kGathersInARow;
    for (int sample = -kBucketWarmups; sample < kBucketSamples && go_on(sample); ++sample) {
      const Stopwatch watch(clock_);
      for (std::size_t turn = 0; turn < kGathersInARow; ++turn)
        gather((2 + turn % 2) * kGatherBytes);
      meet();
      const double us = watch.us();
      if (sample >= 0) samples_.gathers.push_back({.bytes = kGatherBytes, .us = us});
    }
  }

  void gather(std::size_t copy) {
    constexpr std::size_t kCount = kGatherBytes / sizeof(float);
    convert(DType::kFloat32, at(transport_.rank(), copy), DType::kFloat32, at(transport_.rank(), 0),
            kCount, 1.0);
    meet();
    sources_.clear();
    for (int rank : ranks_) sources_.push_back(at(rank, copy));
    reduce(DType::kFloat32, ReduceOp::kSum, at(transport_.rank(), kGatherBytes), sources_, kCount,
           1.0);
  }

  /// Times `work(slot, part)` several times. `slot` is the offset of one of this rank's two slots,
  /// which alternate; `part` is the size of one part in bytes. The slot, and the tensor at offset
  /// 0, have one part for each rank.
  template <typename Work>
  void measure_buckets(std::vector<MemorySamples::Bucket>& samples, const Work& work) {
    const std::size_t ranks = ranks_.size();
    const std::size_t part = kSlotBytes / ranks / kWireAlignment * kWireAlignment;
    begin();
    if (ranks < 2 || 3 * kSlotBytes > room_) return;
    transport_.commit(0, 3 * kSlotBytes);
    for (int sample = -kBucketWarmups; sample < kBucketSamples && go_on(sample); ++sample) {
      const std::size_t slot = (sample % 2 == 0 ? 1 : 2) * kSlotBytes;
      const Stopwatch watch(clock_);
      meet();
      work(slot, part);
      meet();
      const double us = watch.us();
      const auto bytes = static_cast<double>(ranks * part);
      if (sample >= 0) samples.push_back({.bytes = bytes, .us = us});
    }
  }

  /// Sums tensors through slots, as `direct` does with tensors of the caller: only the part that
  /// this rank sums is not copied.
  void measure_slots() {
    measure_buckets(samples_.slots, [this](std::size_t slot, std::size_t part) {
      copy_peers_parts(slot, 0, part, Stores::kCached);
      meet();
      find_parts(slot, part);
      reduce(DType::kFloat32, ReduceOp::kSum, outputs_, sources_, part / sizeof(float), 1.0);
      meet();
      copy_peers_parts(0, slot, part, Stores::kCached);
    });
  }

  /// Sums one part per rank from slots, as a reduce-scatter does with tensors of the caller: the
  /// part that this rank sums is not copied.
  void measure_packing(Stores stores, std::vector<MemorySamples::Bucket>& samples) {
    measure_buckets(samples, [this, stores](std::size_t slot, std::size_t part) {
      copy_peers_parts(slot, 0, part, stores);
      meet();
      find_parts(slot, part);
      reduce(DType::kFloat32, ReduceOp::kSum, at(transport_.rank(), local_rank() * part), sources_,
             part / sizeof(float), 1.0);
    });
  }

  /// Finds the part that this rank sums, in the slots of the other ranks and in its own tensor.
  void find_parts(std::size_t slot, std::size_t part) {
    outputs_.clear();
    for (int rank : ranks_) {
      outputs_.push_back(at(rank, local_rank() * part + (rank == transport_.rank() ? 0 : slot)));
    }
    sources_.assign(outputs_.begin(), outputs_.end());
  }

  void copy_peers_parts(std::size_t to, std::size_t from, std::size_t part, Stores stores) {
    for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
      if (peer == local_rank()) continue;
      convert(DType::kFloat32, at(transport_.rank(), to + peer * part), DType::kFloat32,
              at(transport_.rank(), from + peer * part), part / sizeof(float), 1.0, stores);
    }
  }

  std::size_t local_rank() const {
    return static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), transport_.rank()) -
                                    ranks_.begin());
  }

  std::byte* at(int rank, std::size_t offset) { return transport_.memory(rank).data() + offset; }

  void sum_part(std::size_t part) {
    outputs_.clear();
    for (int rank : ranks_) outputs_.push_back(at(rank, local_rank() * part));
    sources_.assign(outputs_.begin(), outputs_.end());
    reduce(DType::kFloat32, ReduceOp::kSum, outputs_, sources_, part / sizeof(float), 1.0);
  }

  Transport& transport_;
  const std::vector<int>& ranks_;
  const std::uint32_t meet_flag_, leave_flag_;
  const Clock& clock_;
  ProbeBudget budget_;
  int parts_left_ = kParts;
  ProbeWait wait_;
  const std::size_t room_;
  std::uint64_t met_ = 0, asked_ = 0;
  std::size_t passed_ = kWorkingSets.front();  // the last measured working set
  /// Time of the first pass of that working set, which maps pages, and of a later pass.
  double fresh_us_ = 0, pass_us_ = 0;
  std::vector<void*> outputs_;
  std::vector<const void*> sources_;
  MemorySamples samples_;
};

}  // namespace

MemorySamples probe_node(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits,
                         const ProbeTime& time) {
  const std::vector<int>& ranks = grid.ranks_of_node(grid.node(transport.rank()));
  return NodeProbe(transport, ranks, limits, time).run();
}

}  // namespace kolo
