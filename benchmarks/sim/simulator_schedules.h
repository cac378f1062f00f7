#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// The symmetry between the schedules of equally large nodes. The schedules of node 0 describe all
/// nodes: node k performs the steps of node 0, with the node of every peer moved by k and its local
/// rank unchanged.
///
///   kRotation   ring on 3 nodes      0 -> 1     1 -> 2     2 -> 0       moved by adding k
///   kExchange   halving, 4 nodes     0 <-> 2    1 <-> 3    2 <-> 0      moved by exclusive or
enum class NodeSymmetry : std::uint8_t {
  kNone,      ///< Every rank has its own steps.
  kRotation,  ///< Moved by addition modulo the number of nodes.
  kExchange,  ///< Moved by exclusive or; the number of nodes is a power of two.
};

/// The workers of a rank. Each performs one step at a time.
enum class Worker : std::uint8_t {
  kMessages,       ///< The processor, for messages and flags. These precede kernels.
  kKernels,        ///< The processor, for kernels. All further workers are for device buckets.
  kPacks,          ///< The stream of kernels that pack.
  kDeviceKernels,  ///< The stream of all other kernels.
  kCollectives,    ///< The device's native library.
  kDown,           ///< The stream of copies to pinned memory.
  kUp,             ///< The stream of copies from pinned memory.
};
inline constexpr std::size_t kWorkers = 7;

/// Returns the number of the node to which `symmetry` moves `node` by `by`.
int moved(NodeSymmetry symmetry, int node, int by, int num_nodes);

/// The schedules of one bucket on all ranks, reduced to the properties that determine time: kinds,
/// sizes, order, and the peer's step to which each message or flag leads. With a symmetry, only the
/// schedules of node 0 are stored.
///
/// Threads: immutable after construction; any.
class SimulatorSchedules {
 public:
  using Compile = std::function<Schedule(int rank)>;

  /// The partner of a message or flag that no step receives in this iteration.
  static constexpr StepId kNobody = ~StepId{0};

  struct Step {
    StepKind kind;
    NativeOp native;
    NativeGroup group;
    Worker worker;
    int peer;        ///< Only of a message or flag. With a symmetry, seen from node 0.
    StepId partner;  ///< Only of a send or signal: the peer's step that receives it.
    std::uint32_t ordinal;
    std::uint32_t lag;
    std::uint32_t waits;    ///< Number of predecessors; in a recv or await, plus its message or
                            ///< flag.
    std::uint32_t entries;  ///< Number of payload entries that a codec processes one by one.
    /// Bytes that are sent or combined; for a kernel, bytes read plus written. Payloads count with
    /// their usual size.
    std::uint64_t bytes;
    /// The part of `bytes` that a kernel reads just after another rank has written it.
    std::uint64_t shared_bytes;

    /// Returns whether the step waits for a message or flag of this iteration.
    bool takes() const { return kind == StepKind::kRecv || (kind == StepKind::kAwait && lag == 0); }
  };

  /// The schedule of one rank.
  struct Lines {
    std::vector<Step> steps;
    std::vector<std::uint32_t> first;  // index of each step's first successor
    std::vector<StepId> followers;

    std::span<const StepId> successors(StepId step) const {
      return {followers.data() + first[step], first[step + 1] - first[step]};
    }
  };

  /// Compiles the schedules of all ranks, or with a symmetry only of node 0's. `grid` outlives it.
  ///
  /// Errors: UsageError if a message differs in length at its ends or, with a symmetry, has only
  ///         one end; all errors of `compile`.
  SimulatorSchedules(const ProcessGrid& grid, NodeSymmetry symmetry, const Compile& compile);

  NodeSymmetry symmetry() const { return symmetry_; }
  const BucketLayout& layout() const { return layout_; }
  /// Returns the value of `Schedule::eager`.
  bool is_eager() const { return is_eager_; }
  const Lines& of_rank(int rank) const { return lines_[line_of(rank)]; }
  /// Returns the peer of a step of `rank`.
  int peer(int rank, const Step& step) const;
  /// Returns the total number of steps of all ranks.
  std::size_t steps() const { return steps_; }

 private:
  std::size_t line_of(int rank) const;
  void add(const Schedule& schedule);
  void pair_up();

  const ProcessGrid& grid_;
  NodeSymmetry symmetry_;
  BucketLayout layout_;
  bool is_eager_ = false;
  std::size_t steps_ = 0;
  std::vector<Lines> lines_;  // by rank, or by local rank
};

/// Returns the symmetry of the schedules of `nodes`, or kNone. The schedules of each node's first
/// and last rank are compared step by step with those of node 0.
NodeSymmetry find_symmetry(const ProcessGrid& grid, const SimulatorSchedules::Compile& compile,
                           std::span<const int> nodes);

}  // namespace kolo
