#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/part_extents.h"
#include "comm/schedule/rank_range.h"

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
///
/// Parts are computed when they are asked for: an all-to-all has as many as there are pairs.
class Goal {
 public:
  struct Part {
    Extent extent;
    RankRange contributors;  ///< Each is in every element exactly once.
    RankRange receivers;

    bool sums() const { return contributors.size() > 1; }
    bool contributes(int rank) const { return contributors.contains(rank); }
    bool receives(int rank) const { return receivers.contains(rank); }
  };

  /// All parts, in the order of their offsets. The goal outlives it.
  class Parts {
   public:
    class Iterator {
     public:
      using iterator_category = std::input_iterator_tag;
      using value_type = Part;
      using difference_type = std::ptrdiff_t;
      using pointer = const Part*;
      using reference = Part;

      Iterator() = default;
      Iterator(const Goal* goal, std::size_t index) : goal_(goal), index_(index) {}
      Part operator*() const { return goal_->part(index_); }
      Iterator& operator++() {
        ++index_;
        return *this;
      }
      Iterator operator++(int) { return {goal_, index_++}; }
      friend bool operator==(const Iterator&, const Iterator&) = default;

     private:
      const Goal* goal_ = nullptr;
      std::size_t index_ = 0;
    };

    explicit Parts(const Goal& goal) : goal_(goal) {}
    Iterator begin() const { return {&goal_, 0}; }
    Iterator end() const { return {&goal_, goal_.size()}; }

   private:
    const Goal& goal_;
  };

  /// A part of this count ends where the bucket ends.
  static constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

  GoalKind kind = GoalKind::kOther;
  int root = 0;  ///< Of a kind that has one.

  Goal() = default;

  /// The number of parts. They lie side by side from offset 0 on; some may be empty.
  std::size_t size() const { return tensors_.size() * parts_of_tensor(); }
  Part part(std::size_t index) const;
  Parts parts() const { return Parts(*this); }
  /// Elements of all parts.
  std::size_t count() const;

  std::size_t tensors() const { return tensors_.size(); }
  /// Each tensor has as many.
  std::size_t parts_of_tensor() const {
    return tensors_.empty() ? 0 : tensors_.front().counts.size();
  }
  /// Whether all parts of each tensor are equal.
  bool has_equal_parts() const;
  /// Whether each rank receives something that every other rank contributes to, so that none is
  /// done before all have begun.
  bool is_mutual() const;

  /// One goal for the tensors of all: goals of one kind, root and number of ranks, with counts.
  static Goal of_tensors(const std::vector<Goal>& each);
  /// The number of elements is that of the bucket, unless it is given.
  static Goal all_reduce(int world_size, std::size_t count = kWhole);
  static Goal reduce(int root, int world_size, std::size_t count = kWhole);
  static Goal broadcast(int root, int world_size, std::size_t count = kWhole);
  /// `counts`: elements of each rank's part.
  static Goal reduce_scatter(const PartExtents& counts);
  static Goal all_gather(const PartExtents& counts);
  static Goal gather(int root, const PartExtents& counts);
  static Goal scatter(int root, const PartExtents& counts);
  /// `counts[s * world_size + r]`: elements that rank s has for rank r.
  static Goal all_to_all(int world_size, const PartExtents& counts);
  /// Any parts, side by side from offset 0 on.
  static Goal of_parts(int world_size, const std::vector<Part>& parts);

 private:
  struct Roles {
    RankRange contributors, receivers;
  };
  struct Tensor {
    std::size_t begin = 0;
    PartExtents counts;
  };

  Goal(GoalKind of_kind, int of_root, int world_size, PartExtents counts);
  Roles roles(std::size_t part_of_tensor) const;
  /// Whether some tensor has elements in the part.
  bool has_elements(std::size_t part_of_tensor) const;
  bool others_are_mutual() const;
  friend Goal merged(const Goal& goal);

  int world_size_ = 0;
  std::vector<Tensor> tensors_;
  /// Shared, because a plan copies its goal; by part, of kOther.
  std::shared_ptr<const std::vector<Roles>> others_;
};

/// A goal whose parts are equal and as large as a buffer of `count` elements allows, which holds
/// the parts of all ranks, or those that one rank has for all; rank 0 is its root. For tools.
Goal even_goal(GoalKind kind, int ranks, std::size_t count);

/// The same work with one tensor, whose parts are made up of those of all, one after the other.
Goal merged(const Goal& goal);

}  // namespace kolo
