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

/// A range of consecutive ranks, usually one rank or all ranks.
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
  /// Returns the number after the last rank.
  constexpr int end_rank() const { return end_; }
  constexpr bool contains(int rank) const { return first_ <= rank && rank < end_; }
  constexpr Iterator begin() const { return Iterator(first_); }
  constexpr Iterator end() const { return Iterator(end_); }
  friend constexpr bool operator==(const RankRange&, const RankRange&) = default;

 private:
  int first_ = 0, end_ = 0;
};

/// The extents of adjacent parts of a tensor. Parts of equal size are stored as one number.
///
/// Threads: immutable; any. Cost: copies share the memory of the counts.
class PartExtents {
 public:
  PartExtents() = default;
  /// Makes `parts` parts of `each` elements.
  PartExtents(std::size_t parts, std::size_t each) : parts_(parts), each_(each) {}
  /// Implicit, so that callers can pass a list of counts.
  PartExtents(std::span<const std::size_t> counts)  // NOLINT(google-explicit-constructor)
      : PartExtents(counts, 1) {}
  PartExtents(const std::vector<std::size_t>& counts)  // NOLINT(google-explicit-constructor)
      : PartExtents(std::span(counts)) {}
  /// Makes one part of `times * counts[i]` elements for each i.
  PartExtents(std::span<const std::size_t> counts, std::size_t times);

  std::size_t size() const { return parts_; }
  bool are_equal() const { return ends_ == nullptr; }
  /// Returns part i; its offset is relative to the start of part 0.
  Extent operator[](std::size_t i) const {
    if (are_equal()) return {i * each_, each_};
    const std::size_t begin = i == 0 ? 0 : (*ends_)[i - 1];
    return {begin, (*ends_)[i] - begin};
  }
  /// Total number of elements of all parts.
  std::size_t total() const { return parts_ == 0 ? 0 : (*this)[parts_ - 1].end(); }

 private:
  std::size_t parts_ = 0, each_ = 0;
  /// The end of each part in elements; null if all parts are equal. Copies of a spec share it.
  std::shared_ptr<const std::vector<std::size_t>> ends_;
};

/// The kinds of collectives, and of calls that move no data.
enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,  ///< Waits for all ranks; has no parts.
  kClose,    ///< Ends the job; has no parts.
  kOther,    ///< Has arbitrary parts; see CollectiveSpec::of_parts.
};

/// The ranks that contribute to a part of a spec, or that receive it.
enum class PartRanks : std::uint8_t {
  kNone,
  kAll,
  kRoot,
  kOwn,  ///< Part i belongs to rank i. If contributors and receivers are both kOwn, there is a part
         ///< for each pair of a contributor and a receiver.
};

struct CollectiveTraits {
  CollectiveKind value;
  /// Names of the collective, such as "all-reduce", and of its call, such as "all_reduce".
  std::string_view names[2];
  PartRanks contributors = PartRanks::kNone;
  PartRanks receivers = PartRanks::kNone;
};

/// One row per kind, in the order of CollectiveKind.
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
/// Whether a rank's input has one part for each rank.
constexpr bool takes_parts(CollectiveKind kind) {
  return traits_of(kind).receivers == PartRanks::kOwn;
}
/// Whether a rank's result has one part for each rank.
constexpr bool gives_parts(CollectiveKind kind) {
  return traits_of(kind).contributors == PartRanks::kOwn;
}
/// Whether the elements are divided into one part per rank or per pair of ranks.
constexpr bool has_parts(CollectiveKind kind) { return takes_parts(kind) || gives_parts(kind); }
constexpr bool has_pairs(CollectiveKind kind) { return takes_parts(kind) && gives_parts(kind); }
/// Whether the root alone chooses if its tensor is used in place.
constexpr bool is_up_to_root(CollectiveKind kind) { return has_root(kind) && has_parts(kind); }

constexpr bool is_called(CollectiveKind kind) { return !traits_of(kind).names[1].empty(); }

/// All kinds that move data.
inline constexpr auto kAllCollectiveKinds = values_where<kCollectiveTraits, has_elements>();

/// Returns "all-reduce", "reduce", "broadcast", ...; empty for kBarrier, kClose and kOther.
std::string_view to_string(CollectiveKind kind);
/// Returns "all_reduce", ..., "barrier", "close"; empty for kOther.
constexpr std::string_view call_name(CollectiveKind kind) { return traits_of(kind).names[1]; }
/// Returns the names of all kinds that move data.
std::vector<std::string> collective_kind_names();
/// Returns the kind with this name. Errors: UsageError that lists the valid names.
CollectiveKind parse_collective_kind(std::string_view name);

/// The purpose of the schedules of all ranks for one bucket: which ranks contribute to each part of
/// the bucket, and which ranks receive its result (see `kCollectiveTraits`).
///
/// The bucket holds all parts contiguously. A rank needs memory only for parts that it contributes
/// to or receives. A spec for several tensors has all parts of the first tensor, then all parts of
/// the second, and so on.
///
/// `part` computes a part on each call, because an all-to-all has one part per pair of ranks.
class CollectiveSpec {
 public:
  struct Part {
    Extent extent;
    RankRange contributors;  ///< Each rank contributes to every element exactly once.
    RankRange receivers;

    bool sums() const { return contributors.size() > 1; }
    bool contributes(int rank) const { return contributors.contains(rank); }
    bool receives(int rank) const { return receivers.contains(rank); }
  };

  /// An iterable view of all parts, in the order of their offsets. The spec must outlive this view.
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

  /// A count that stands for all remaining elements of the bucket.
  static constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

  CollectiveKind kind = CollectiveKind::kOther;
  int root = 0;  ///< Used only by kinds with a root.

  CollectiveSpec() = default;

  /// Number of parts. They are contiguous and start at offset 0; some may be empty.
  std::size_t size() const { return tensors_.size() * parts_of_tensor(); }
  Part part(std::size_t index) const;
  Parts parts() const { return Parts(*this); }
  /// Total number of elements of all parts.
  std::size_t count() const;

  std::size_t tensors() const { return tensors_.size(); }
  /// Number of parts per tensor.
  std::size_t parts_of_tensor() const {
    return tensors_.empty() ? 0 : tensors_.front().counts.size();
  }
  /// Whether the parts of each tensor are of equal size.
  bool has_equal_parts() const;
  /// Whether each rank receives data from every other rank, so that no rank completes before all
  /// ranks have started.
  bool is_mutual() const;

  /// Makes one spec for several tensors from their specs, which have equal kind, root and number of
  /// ranks, and counts other than kWhole.
  static CollectiveSpec of_tensors(const std::vector<CollectiveSpec>& each);
  /// Makes a spec from the number of elements of each part. The functions below use kWhole by
  /// default, which stands for the bucket's number of elements.
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
  /// `counts[r]` is the number of elements of rank r's part.
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
  /// `counts[s * world_size + r]` is the number of elements that rank s sends to rank r.
  static CollectiveSpec all_to_all(int world_size, const PartExtents& counts) {
    return of(CollectiveKind::kAllToAll, 0, world_size, counts);
  }
  /// Makes a spec of kind kOther. Its parts are contiguous and start at offset 0.
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
  /// Whether any tensor has elements in this part.
  bool has_elements(std::size_t part_of_tensor) const;
  bool others_are_mutual() const;
  friend CollectiveSpec merged(const CollectiveSpec& spec);

  int world_size_ = 0;
  std::vector<Tensor> tensors_;
  /// For kOther only: contributors and receivers by part. Copies of a spec share it.
  std::shared_ptr<const std::vector<Roles>> others_;
};

/// Makes a spec with equal parts, for tools. `count` is the number of elements of all ranks' parts;
/// for an all-to-all, of the parts that one rank sends. Rank 0 is the root.
CollectiveSpec even_spec(CollectiveKind kind, int ranks, std::size_t count);

/// Returns a spec for one tensor that stands for the same collective: part i holds the elements of
/// part i of every tensor of `spec`.
CollectiveSpec merged(const CollectiveSpec& spec);

}  // namespace kolo
