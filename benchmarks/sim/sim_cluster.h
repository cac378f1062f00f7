#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "benchmarks/sim/simulator.h"
#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/compile.h"
#include "comm/base/error.h"
#include "compression/sparse_all_reduce.h"

namespace kolo::bench {

[[noreturn]] inline void refuse(ErrorCode code, std::string what) {
  throw KoloError({.code = code, .what = std::move(what)});
}

/// Ranks that are late or slow, drawn at random.
struct Stragglers {
  double late_us = 0;      ///< Mean lateness of a rank, exponentially distributed.
  double slow_share = 0;   ///< Probability that a rank is slow.
  double slow_factor = 1;  ///< Factor by which a slow rank takes longer.
  std::uint64_t seed = 1;

  bool exist() const { return late_us > 0 || (slow_share > 0 && slow_factor != 1); }
};

/// The random values of `stragglers`, by rank.
struct Lateness {
  std::vector<double> late_us;
  std::vector<double> slowness;
};
Lateness draw(const Stragglers& stragglers, int ranks);

/// A job on simulated machines.
struct ClusterSpec {
  int nodes = 1;
  int ranks_per_node = 1;
  MachineCosts costs = {};
  CompileOptions compile = {};  ///< Its link costs are replaced by those of `costs`.
  /// Placement of the tensors: in the bucket's memory, or packed.
  Placement placement = Placement::kInPlace;
  MemoryKind memory = MemoryKind::kHost;
  Stragglers stragglers = {};
  /// Simulates the schedule of every rank, even if nodes are equal.
  bool full = false;
};

/// The ranks of a cluster, and the schedules of the buckets that they run.
///
/// With up to `kMostRanksInFull` ranks, each has its own schedule. Beyond that, node 0 represents
/// all nodes, and buckets are padded so that all parts are equal.
///
/// Threads: one.
class Cluster {
 public:
  static constexpr int kMostRanksInFull = 64;

  explicit Cluster(ClusterSpec spec);

  const ClusterSpec& spec() const { return spec_; }
  const ProcessGrid& grid() const { return grid_; }
  const Lateness& lateness() const { return lateness_; }

  /// A bucket of this cluster. `count` is padded as in the runtime.
  BucketLayout layout(std::size_t count, DType dtype) const;
  const AllReduce& algorithm(const BucketLayout& layout) const;
  /// Compiled once for equal layouts; lives as long as the cluster. Errors: KoloError(kConfig) if
  /// the job is too large or its nodes are not equal, with advice; the errors of `choose`.
  const SimulatorSchedules& schedules(const BucketLayout& layout);
  /// The schedules of a sparse step of a compressed bucket, compiled anew for each call; they live
  /// as long as the cluster. Errors: as above.
  const SimulatorSchedules& schedules(const SparseOptions& group);

  /// The schedules of a collective that is not an all-reduce; otherwise as for compressed buckets.
  const SimulatorSchedules& schedules(const CollectiveSpec& spec, const BucketLayout& layout,
                                      const Algorithm& algorithm);

  /// Time from the last rank being ready until all ranks know it: up and down the tree of
  /// agreement.
  double agreement_us() const;

  /// The time at which the slowest rank completes each bucket. Each rank starts eager buckets when
  /// it is ready; other buckets start when all ranks have agreed. `ready_us` is by bucket, then by
  /// rank, without the delays of stragglers, which are added.
  std::vector<double> run(const std::vector<const SimulatorSchedules*>& all,
                          const std::vector<double>& ready_us);
  std::vector<double> run(const std::vector<BucketLayout>& layouts,
                          const std::vector<double>& ready_us);

 private:
  SimulatorSchedules make_schedules(BucketLayout layout) const;
  SimulatorSchedules make_schedules(const SimulatorSchedules::Compile& compile,
                                    const std::string& what) const;
  bool is_small() const;
  BucketLayout padded(BucketLayout layout, CompileOptions& options) const;
  void check_size(const BucketLayout& layout, const CompileOptions& options,
                  const AllReduce& algorithm) const;

  ClusterSpec spec_;
  ProcessGrid grid_;
  Lateness lateness_;
  std::map<std::tuple<std::size_t, DType>, std::unique_ptr<SimulatorSchedules>> schedules_;
  std::vector<std::unique_ptr<SimulatorSchedules>> others_;
};

}  // namespace kolo::bench
