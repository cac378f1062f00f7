#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// How the schedules of nodes of equal size are alike, so that those of node 0 describe all. Node k
/// does what node 0 does, with every peer's node moved by k; local ranks stay.
///
///   kRotation   ring on 3 nodes      0 -> 1     1 -> 2     2 -> 0       moved by adding k
///   kExchange   halving, 4 nodes     0 <-> 2    1 <-> 3    2 <-> 0      moved by exclusive or
enum class NodeSymmetry : std::uint8_t {
  kNone,      ///< Every rank has steps of its own.
  kRotation,  ///< Modulo the number of nodes.
  kExchange,  ///< The number of nodes is a power of two.
};

/// What a rank has one of, each of which does one step at a time.
enum class Worker : std::uint8_t {
  kMessages,       ///< The processor, which hands over messages and flags before it runs kernels.
  kKernels,        ///< The same processor. Host buckets only; of device buckets:
  kPacks,          ///< The stream that packs.
  kDeviceKernels,  ///< The stream of all other kernels.
  kCollectives,    ///< The device's own library.
  kDown,           ///< Copies to pinned memory.
  kUp,             ///< Copies from it.
};
inline constexpr std::size_t kWorkers = 7;

/// Node `node` moved by `by`.
int moved(NodeSymmetry symmetry, int node, int by, int num_nodes);

/// The schedules of one bucket on all ranks, reduced to what time depends on: kinds, sizes, order,
/// and which step at the peer each message or flag leads to. With a symmetry only node 0's are
/// kept.
///
/// Threads: immutable after construction; any.
class SimulatorSchedules {
 public:
  using Compile = std::function<Schedule(int rank)>;

  /// Of a message or flag that nobody takes in this iteration.
  static constexpr StepId kNobody = ~StepId{0};

  struct Step {
    StepKind kind;
    NativeOp native;
    NativeGroup group;
    Worker worker;
    int peer;        ///< Of a message or flag; as node 0 sees it if there is a symmetry.
    StepId partner;  ///< Of a send or signal: the step that takes it at the peer.
    std::uint32_t ordinal;
    std::uint32_t lag;
    std::uint32_t waits;    ///< Predecessors; of a recv or await one more, what it takes.
    std::uint32_t entries;  ///< Of payloads, that a codec handles one by one.
    /// That travel or are combined; of a kernel: read plus written. Payloads count with what they
    /// hold as a rule.
    std::uint64_t bytes;
    /// Of these, what the kernel reads where another rank has just written it.
    std::uint64_t shared_bytes;

    /// Whether it waits for a message or flag of this iteration.
    bool takes() const { return kind == StepKind::kRecv || (kind == StepKind::kAwait && lag == 0); }
  };

  /// One rank's part.
  struct Lines {
    std::vector<Step> steps;
    std::vector<std::uint32_t> first;  // of each step's successors
    std::vector<StepId> followers;

    std::span<const StepId> successors(StepId step) const {
      return {followers.data() + first[step], first[step + 1] - first[step]};
    }
  };

  /// Compiles the schedules of all ranks, or of node 0's if there is a symmetry. `grid` outlives
  /// it.
  ///
  /// Errors: UsageError if a message differs in length at its ends or, with a symmetry, has only
  ///         one end; whatever `compile` throws.
  SimulatorSchedules(const ProcessGrid& grid, NodeSymmetry symmetry, const Compile& compile);

  NodeSymmetry symmetry() const { return symmetry_; }
  const BucketLayout& layout() const { return layout_; }
  /// See `Schedule::eager`.
  bool is_eager() const { return is_eager_; }
  const Lines& of_rank(int rank) const { return lines_[line_of(rank)]; }
  /// The peer of `step`, which is one of `rank`'s.
  int peer(int rank, const Step& step) const;
  /// Steps of all ranks together.
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

/// The symmetry that the schedules of `nodes` show (compared line by line with those of node 0, on
/// their first and last ranks), or kNone.
NodeSymmetry find_symmetry(const ProcessGrid& grid, const SimulatorSchedules::Compile& compile,
                           std::span<const int> nodes);

}  // namespace kolo
