#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/value_table.h"
#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// Consecutive ranks, usually one or all.
class RankRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = int;
    using difference_type = std::ptrdiff_t;
    using pointer = const int*;
    using reference = int;

    constexpr Iterator() = default;
    constexpr explicit Iterator(int rank) : rank_(rank) {}
    constexpr int operator*() const { return rank_; }
    constexpr Iterator& operator++() {
      ++rank_;
      return *this;
    }
    constexpr Iterator operator++(int) { return Iterator(rank_++); }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    int rank_ = 0;
  };

  constexpr RankRange() = default;
  constexpr RankRange(int first, int end) : first_(first), end_(end) {}
  static constexpr RankRange one(int rank) { return {rank, rank + 1}; }
  static constexpr RankRange all(int world_size) { return {0, world_size}; }

  constexpr std::size_t size() const { return static_cast<std::size_t>(end_ - first_); }
  constexpr bool empty() const { return first_ == end_; }
  constexpr int front() const { return first_; }
  /// One past the last rank.
  constexpr int end_rank() const { return end_; }
  constexpr bool contains(int rank) const { return first_ <= rank && rank < end_; }
  constexpr Iterator begin() const { return Iterator(first_); }
  constexpr Iterator end() const { return Iterator(end_); }
  friend constexpr bool operator==(const RankRange&, const RankRange&) = default;

 private:
  int first_ = 0, end_ = 0;
};

/// The extents of adjacent parts; equal parts take no memory.
///
/// Threads: immutable; any. Cost: copies share the counts.
class PartExtents {
 public:
  PartExtents() = default;
  /// `parts` parts of `each` elements.
  PartExtents(std::size_t parts, std::size_t each) : parts_(parts), each_(each) {}
  /// Implicit, so that a list of counts converts.
  PartExtents(std::span<const std::size_t> counts)  // NOLINT(google-explicit-constructor)
      : PartExtents(counts, 1) {}
  PartExtents(const std::vector<std::size_t>& counts)  // NOLINT(google-explicit-constructor)
      : PartExtents(std::span(counts)) {}
  /// `times` consecutive parts of each of `counts`.
  PartExtents(std::span<const std::size_t> counts, std::size_t times);

  std::size_t size() const { return parts_; }
  bool are_equal() const { return ends_ == nullptr; }
  /// Part i, relative to the beginning of the first part.
  Extent operator[](std::size_t i) const {
    if (are_equal()) return {i * each_, each_};
    const std::size_t begin = i == 0 ? 0 : (*ends_)[i - 1];
    return {begin, (*ends_)[i] - begin};
  }
  /// Total number of elements.
  std::size_t total() const { return parts_ == 0 ? 0 : (*this)[parts_ - 1].end(); }

 private:
  std::size_t parts_ = 0, each_ = 0;
  /// Shared, because a plan copies its spec; null if all parts are equal.
  std::shared_ptr<const std::vector<std::size_t>> ends_;
};

/// A collective, or a call without data.
enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,  ///< Has no parts.
  kClose,    ///< The end of the job.
  kOther,    ///< Arbitrary parts.
};

/// Which ranks contribute to the parts of a spec, or receive them.
enum class PartRanks : std::uint8_t {
  kNone,
  kAll,
  kRoot,
  kOwn,  ///< There is a part for each rank, its own; or for each pair of a contributor and
         ///< receiver.
};

struct CollectiveTraits {
  CollectiveKind value;
  std::string_view names[2];  ///< Names of the collective and of its call.
  PartRanks contributors = PartRanks::kNone;
  PartRanks receivers = PartRanks::kNone;
};

/// One row per kind, in the order of the enumeration.
inline constexpr CollectiveTraits kCollectiveTraits[] = {
    {CollectiveKind::kAllReduce, {"all-reduce", "all_reduce"}, PartRanks::kAll, PartRanks::kAll},
    {CollectiveKind::kReduce, {"reduce", "reduce"}, PartRanks::kAll, PartRanks::kRoot},
    {CollectiveKind::kBroadcast, {"broadcast", "broadcast"}, PartRanks::kRoot, PartRanks::kAll},
    {CollectiveKind::kReduceScatter,
     {"reduce-scatter", "reduce_scatter"},
     PartRanks::kAll,
     PartRanks::kOwn},
    {CollectiveKind::kAllGather, {"all-gather", "all_gather"}, PartRanks::kOwn, PartRanks::kAll},
    {CollectiveKind::kGather, {"gather", "gather"}, PartRanks::kOwn, PartRanks::kRoot},
    {CollectiveKind::kScatter, {"scatter", "scatter"}, PartRanks::kRoot, PartRanks::kOwn},
    {CollectiveKind::kAllToAll, {"all-to-all", "all_to_all"}, PartRanks::kOwn, PartRanks::kOwn},
    {CollectiveKind::kBarrier, {"", "barrier"}},
    {CollectiveKind::kClose, {"", "close"}},
    {CollectiveKind::kOther, {}}};

constexpr const CollectiveTraits& traits_of(CollectiveKind kind) {
  return kCollectiveTraits[static_cast<std::size_t>(kind)];
}

constexpr bool has_elements(CollectiveKind kind) {
  return traits_of(kind).contributors != PartRanks::kNone;
}
constexpr bool is_from_root(CollectiveKind kind) {
  return traits_of(kind).contributors == PartRanks::kRoot;
}
constexpr bool is_to_root(CollectiveKind kind) {
  return traits_of(kind).receivers == PartRanks::kRoot;
}
constexpr bool is_to_all(CollectiveKind kind) {
  return traits_of(kind).receivers == PartRanks::kAll;
}
constexpr bool has_root(CollectiveKind kind) { return is_from_root(kind) || is_to_root(kind); }
constexpr bool reduces(CollectiveKind kind) {
  return traits_of(kind).contributors == PartRanks::kAll;
}
/// Whether a rank's input has a part for each rank.
constexpr bool takes_parts(CollectiveKind kind) {
  return traits_of(kind).receivers == PartRanks::kOwn;
}
/// Whether a rank's result has a part for each rank.
constexpr bool gives_parts(CollectiveKind kind) {
  return traits_of(kind).contributors == PartRanks::kOwn;
}
/// Whether the elements are divided into one part per rank or per pair of ranks.
constexpr bool has_parts(CollectiveKind kind) { return takes_parts(kind) || gives_parts(kind); }
constexpr bool has_pairs(CollectiveKind kind) { return takes_parts(kind) && gives_parts(kind); }
/// Whether only the root decides to work in place.
constexpr bool is_up_to_root(CollectiveKind kind) { return has_root(kind) && has_parts(kind); }

constexpr bool is_called(CollectiveKind kind) { return !traits_of(kind).names[1].empty(); }

/// Every collective, for loops.
inline constexpr auto kAllCollectiveKinds = values_where<kCollectiveTraits, has_elements>();

/// "all-reduce", "reduce", "broadcast", ...; empty for a kind that is not a collective.
std::string_view to_string(CollectiveKind kind);
/// "all_reduce", ..., "barrier"; empty for kOther.
constexpr std::string_view call_name(CollectiveKind kind) { return traits_of(kind).names[1]; }
/// The names of all collectives.
std::vector<std::string> collective_kind_names();
/// Errors: UsageError that lists the valid names.
CollectiveKind parse_collective_kind(std::string_view name);

/// The purpose of a set of schedules, one per rank: for each part of a bucket, the ranks that
/// contribute to it and the ranks that receive the result (see `kCollectiveTraits`).
///
/// The bucket holds all parts contiguously. A rank needs memory for parts that it contributes to or
/// receives. A spec for several tensors has the parts of each, one tensor after the other.
///
/// Parts are computed on request: an all-to-all has one per pair of ranks.
class CollectiveSpec {
 public:
  struct Part {
    Extent extent;
    RankRange contributors;  ///< Each contributes to every element exactly once.
    RankRange receivers;

    bool sums() const { return contributors.size() > 1; }
    bool contributes(int rank) const { return contributors.contains(rank); }
    bool receives(int rank) const { return receivers.contains(rank); }
  };

  /// All parts, in the order of their offsets. The spec outlives this view.
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
      Iterator(const CollectiveSpec* spec, std::size_t index) : spec_(spec), index_(index) {}
      Part operator*() const { return spec_->part(index_); }
      Iterator& operator++() {
        ++index_;
        return *this;
      }
      Iterator operator++(int) { return {spec_, index_++}; }
      friend bool operator==(const Iterator&, const Iterator&) = default;

     private:
      const CollectiveSpec* spec_ = nullptr;
      std::size_t index_ = 0;
    };

    explicit Parts(const CollectiveSpec& spec) : spec_(spec) {}
    Iterator begin() const { return {&spec_, 0}; }
    Iterator end() const { return {&spec_, spec_.size()}; }

   private:
    const CollectiveSpec& spec_;
  };

  /// A part with this count ends at the end of the bucket.
  static constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

  CollectiveKind kind = CollectiveKind::kOther;
  int root = 0;  ///< For kinds with a root.

  CollectiveSpec() = default;

  /// The number of parts. They are contiguous from offset 0 on; some may be empty.
  std::size_t size() const { return tensors_.size() * parts_of_tensor(); }
  Part part(std::size_t index) const;
  Parts parts() const { return Parts(*this); }
  /// Elements in all parts.
  std::size_t count() const;

  std::size_t tensors() const { return tensors_.size(); }
  /// Number of parts per tensor.
  std::size_t parts_of_tensor() const {
    return tensors_.empty() ? 0 : tensors_.front().counts.size();
  }
  /// Whether all parts of each tensor are equal.
  bool has_equal_parts() const;
  /// Whether each rank receives data that every other rank contributes to, so that no rank is done
  /// before all have begun.
  bool is_mutual() const;

  /// One spec for all tensors: combines specs of equal kind, root and number of ranks, with counts.
  static CollectiveSpec of_tensors(const std::vector<CollectiveSpec>& each);
  /// Without counts, the number of elements is that of the bucket. `counts`: elements of each part
  /// of a collective.
  static CollectiveSpec of(CollectiveKind kind, int root, int world_size, PartExtents counts) {
    return {kind, root, world_size, std::move(counts)};
  }
  static CollectiveSpec all_reduce(int world_size, std::size_t count = kWhole) {
    return of(CollectiveKind::kAllReduce, 0, world_size, {1, count});
  }
  static CollectiveSpec reduce(int root, int world_size, std::size_t count = kWhole) {
    return of(CollectiveKind::kReduce, root, world_size, {1, count});
  }
  static CollectiveSpec broadcast(int root, int world_size, std::size_t count = kWhole) {
    return of(CollectiveKind::kBroadcast, root, world_size, {1, count});
  }
  /// `counts`: elements of each rank's part.
  static CollectiveSpec reduce_scatter(const PartExtents& counts) {
    return of(CollectiveKind::kReduceScatter, 0, static_cast<int>(counts.size()), counts);
  }
  static CollectiveSpec all_gather(const PartExtents& counts) {
    return of(CollectiveKind::kAllGather, 0, static_cast<int>(counts.size()), counts);
  }
  static CollectiveSpec gather(int root, const PartExtents& counts) {
    return of(CollectiveKind::kGather, root, static_cast<int>(counts.size()), counts);
  }
  static CollectiveSpec scatter(int root, const PartExtents& counts) {
    return of(CollectiveKind::kScatter, root, static_cast<int>(counts.size()), counts);
  }
  /// `counts[s * world_size + r]`: elements that rank s has for rank r.
  static CollectiveSpec all_to_all(int world_size, const PartExtents& counts) {
    return of(CollectiveKind::kAllToAll, 0, world_size, counts);
  }
  /// Arbitrary parts, contiguous from offset 0 on.
  static CollectiveSpec of_parts(int world_size, const std::vector<Part>& parts);

 private:
  struct Roles {
    RankRange contributors, receivers;
  };
  struct Tensor {
    std::size_t begin = 0;
    PartExtents counts;
  };

  CollectiveSpec(CollectiveKind of_kind, int of_root, int world_size, PartExtents counts);
  Roles roles(std::size_t part_of_tensor) const;
  /// Whether any tensor has elements in the part.
  bool has_elements(std::size_t part_of_tensor) const;
  bool others_are_mutual() const;
  friend CollectiveSpec merged(const CollectiveSpec& spec);

  int world_size_ = 0;
  std::vector<Tensor> tensors_;
  /// Shared, because a plan copies its spec; by part, for kOther.
  std::shared_ptr<const std::vector<Roles>> others_;
};

/// A spec for tools, with equal parts as large as a buffer of `count` elements allows. The buffer
/// holds the parts of all ranks, or the parts that one rank has for all; rank 0 is the root.
CollectiveSpec even_spec(CollectiveKind kind, int ranks, std::size_t count);

/// The same work as a spec for one tensor, each of whose parts joins the parts of all tensors.
CollectiveSpec merged(const CollectiveSpec& spec);

}  // namespace kolo
