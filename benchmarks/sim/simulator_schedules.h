#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// The symmetry of the schedules of equally large nodes, by which those of node 0 describe all:
/// node k does what node 0 does, with every peer's node moved by k; local ranks stay.
///
///   kRotation   ring on 3 nodes      0 -> 1     1 -> 2     2 -> 0       moved by adding k
///   kExchange   halving, 4 nodes     0 <-> 2    1 <-> 3    2 <-> 0      moved by exclusive or
enum class NodeSymmetry : std::uint8_t {
  kNone,      ///< Every rank has its own steps.
  kRotation,  ///< Moved by addition modulo the number of nodes.
  kExchange,  ///< Moved by exclusive or; the number of nodes is a power of two.
};

/// The workers of a rank, each of which does one step at a time.
enum class Worker : std::uint8_t {
  kMessages,       ///< The processor, for messages and flags, before it runs kernels.
  kKernels,        ///< The processor, for kernels of host buckets. The others are for device
                   ///< buckets:
  kPacks,          ///< The stream that packs.
  kDeviceKernels,  ///< The stream of all other kernels.
  kCollectives,    ///< The device's native library.
  kDown,           ///< Copies to pinned memory.
  kUp,             ///< Copies from pinned memory.
};
inline constexpr std::size_t kWorkers = 7;

/// Node `node` moved by `by`.
int moved(NodeSymmetry symmetry, int node, int by, int num_nodes);

/// The schedules of one bucket on all ranks, reduced to what determines time: kinds, sizes, order,
/// and the step at the peer that each message or flag leads to. With a symmetry, only node 0's
/// schedules are kept.
///
/// Threads: immutable after construction; any.
class SimulatorSchedules {
 public:
  using Compile = std::function<Schedule(int rank)>;

  /// Partner of a message or flag that no step takes in this iteration.
  static constexpr StepId kNobody = ~StepId{0};

  struct Step {
    StepKind kind;
    NativeOp native;
    NativeGroup group;
    Worker worker;
    int peer;        ///< For a message or flag; with a symmetry, as seen from node 0.
    StepId partner;  ///< For a send or signal: the step that takes it at the peer.
    std::uint32_t ordinal;
    std::uint32_t lag;
    std::uint32_t waits;    ///< Number of predecessors; for a recv or await, plus one for its
                            ///< message or flag.
    std::uint32_t entries;  ///< Entries of payloads that a codec processes one by one.
    /// Bytes that are sent or combined; for a kernel, read plus written. Payloads count with their
    /// usual size.
    std::uint64_t bytes;
    /// The part of `bytes` that a kernel reads just after another rank has written it.
    std::uint64_t shared_bytes;

    /// Whether the step waits for a message or flag of this iteration.
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

  /// Compiles the schedules of all ranks, or with a symmetry of node 0's ranks. `grid` outlives it.
  ///
  /// Errors: UsageError if a message differs in length at its ends or, with a symmetry, has only
  ///         one end; all errors of `compile`.
  SimulatorSchedules(const ProcessGrid& grid, NodeSymmetry symmetry, const Compile& compile);

  NodeSymmetry symmetry() const { return symmetry_; }
  const BucketLayout& layout() const { return layout_; }
  /// See `Schedule::eager`.
  bool is_eager() const { return is_eager_; }
  const Lines& of_rank(int rank) const { return lines_[line_of(rank)]; }
  /// The peer of `step` of `rank`.
  int peer(int rank, const Step& step) const;
  /// Total number of steps of all ranks.
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

/// The symmetry of the schedules of `nodes`, found by comparing them line by line with those of
/// node 0, for their first and last ranks; kNone without one.
NodeSymmetry find_symmetry(const ProcessGrid& grid, const SimulatorSchedules::Compile& compile,
                           std::span<const int> nodes);

}  // namespace kolo
