#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// What a goal is called, and how its parts are made; see `Goal`.
enum class GoalKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kOther,  ///< Any parts.
};

/// "all-reduce", "reduce", "broadcast", ...; empty for kOther.
std::string_view to_string(GoalKind kind);
/// The names of all kinds but kOther.
std::vector<std::string> goal_kind_names();
/// Errors: UsageError that lists the names.
GoalKind parse_goal_kind(std::string_view name);

/// The purpose of a set of schedules, one per rank: for each part of a bucket, the ranks that
/// contribute to it and those that end with the result.
///
///   | Collective     | parts             | contributors | receivers |
///   | all-reduce     | 1                 | all          | all       |
///   | reduce         | 1                 | all          | the root  |
///   | broadcast      | 1                 | the root     | all       |
///   | reduce-scatter | 1 for each r      | all          | r         |
///   | all-gather     | 1 for each r      | r            | all       |
///   | gather         | 1 for each r      | r            | the root  |
///   | scatter        | 1 for each r      | the root     | r         |
///   | all-to-all     | 1 for each (s, r) | s            | r         |
///
/// The bucket holds all parts side by side. A rank needs memory for those that it contributes to
/// and those that it receives. A goal for several tensors has the parts of each, one tensor after
/// the other.
struct Goal {
  struct Part {
    Extent extent;
    std::vector<int> contributors;  ///< Ascending; each is in every element exactly once.
    std::vector<int> receivers;     ///< Ascending.

    bool sums() const { return contributors.size() > 1; }
    bool contributes(int rank) const { return std::ranges::binary_search(contributors, rank); }
    bool receives(int rank) const { return std::ranges::binary_search(receivers, rank); }
  };

  /// A part of this count ends where the bucket ends.
  static constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

  GoalKind kind = GoalKind::kOther;
  int root = 0;             ///< Of a kind that has one.
  std::vector<Part> parts;  ///< Ascending, side by side from offset 0 on; some may be empty.
  std::size_t tensors = 1;  ///< Each has as many of the parts.

  /// Elements of all parts.
  std::size_t count() const { return parts.empty() ? 0 : parts.back().extent.end(); }
  /// The parts of one tensor.
  std::span<const Part> parts_of(std::size_t tensor) const {
    const std::size_t each = parts.size() / tensors;
    return std::span(parts).subspan(tensor * each, each);
  }
  /// Whether each of `world_size` ranks receives something that every rank contributes to, so that
  /// none is done before all have begun.
  bool is_mutual(int world_size) const;

  /// One goal for the tensors of all: goals of one kind, root and number of ranks, with counts.
  static Goal of_tensors(std::vector<Goal> each);
  /// The number of elements is that of the bucket, unless it is given.
  static Goal all_reduce(int world_size, std::size_t count = kWhole);
  static Goal reduce(int root, int world_size, std::size_t count = kWhole);
  static Goal broadcast(int root, int world_size, std::size_t count = kWhole);
  /// `counts`: elements of each rank's part.
  static Goal reduce_scatter(std::span<const std::size_t> counts);
  static Goal all_gather(std::span<const std::size_t> counts);
  static Goal gather(int root, std::span<const std::size_t> counts);
  static Goal scatter(int root, std::span<const std::size_t> counts);
  /// `counts[s * world_size + r]`: elements that rank s has for rank r.
  static Goal all_to_all(int world_size, std::span<const std::size_t> counts);
};

/// A goal whose parts are equal and as large as a buffer of `count` elements allows, which holds
/// the parts of all ranks, or those that one rank has for all; rank 0 is its root. For tools.
Goal even_goal(GoalKind kind, int ranks, std::size_t count);

/// The same work with one tensor, whose parts are made up of those of all, one after the other.
Goal merged(Goal goal);

}  // namespace kolo
