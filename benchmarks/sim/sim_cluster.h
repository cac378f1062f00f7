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

/// Parameters of the random lateness and slowness of ranks.
struct Stragglers {
  double late_us = 0;      ///< Mean delay of a rank in microseconds, exponentially distributed.
  double slow_share = 0;   ///< Probability that a rank is slow.
  double slow_factor = 1;  ///< Factor by which a slow rank takes longer.
  std::uint64_t seed = 1;

  bool exist() const { return late_us > 0 || (slow_share > 0 && slow_factor != 1); }
};

/// The random delay and the slowdown factor of each rank.
struct Lateness {
  std::vector<double> late_us;
  std::vector<double> slowness;
};
Lateness draw(const Stragglers& stragglers, int ranks);

/// A job on simulated machines, with the parameters of its all-reduces.
struct ClusterSpec {
  int nodes = 1;
  int ranks_per_node = 1;
  MachineCosts costs = {};
  CompileOptions compile = {};  ///< Its link costs are ignored in favour of `costs`.
  /// Whether tensors are in the memory of their bucket or are packed into it.
  Placement placement = Placement::kInPlace;
  MemoryKind memory = MemoryKind::kHost;
  Stragglers stragglers = {};
  /// Whether to simulate the schedule of every rank even if all nodes are equal.
  bool full = false;
};

/// The ranks of a cluster, and the schedules of the buckets that they run.
///
/// Up to `kMostRanksInFull` ranks, each rank has its own schedule. In a larger cluster, node 0
/// represents all nodes, and buckets are padded so that all parts are equal.
///
/// Threads: one.
class Cluster {
 public:
  static constexpr int kMostRanksInFull = 64;

  explicit Cluster(ClusterSpec spec);

  const ClusterSpec& spec() const { return spec_; }
  const ProcessGrid& grid() const { return grid_; }
  const Lateness& lateness() const { return lateness_; }

  /// Returns the layout of a bucket in this cluster. `count` is padded as in the runtime.
  BucketLayout layout(std::size_t count, DType dtype) const;
  const AllReduce& algorithm(const BucketLayout& layout) const;
  /// Returns the schedules of a bucket. They are compiled once for equal layouts and live as long
  /// as the cluster. Errors: KoloError(kConfig), with advice, if the job is too large or its nodes
  /// are unequal; the errors of `choose`.
  const SimulatorSchedules& schedules(const BucketLayout& layout);
  /// Returns the schedules of a sparse step of a compressed bucket. Each call compiles new ones;
  /// they live as long as the cluster. Errors: as above.
  const SimulatorSchedules& schedules(const SparseOptions& group);

  /// Returns the schedules of another collective, with the same lifetime and errors.
  const SimulatorSchedules& schedules(const CollectiveSpec& spec, const BucketLayout& layout,
                                      const Algorithm& algorithm);

  /// Returns the time from the moment at which the last rank is ready until all ranks know it. The
  /// messages of agreement pass up and down a tree.
  double agreement_us() const;

  /// Returns the time at which the slowest rank completes each bucket. A rank starts an eager
  /// bucket when it is ready itself; other buckets start when all ranks have agreed. `ready_us` is
  /// indexed by bucket, then by rank; the delays of stragglers are added to it.
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
