#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// A set of ranks in bounded memory. It lists only the first kMostRanges ranges of consecutive
/// ranks, but counts all ranks.
///
/// Threads: pure value; any.
class RankSet {
 public:
  struct Range {
    int first = 0;
    int last = 0;

    friend bool operator==(const Range&, const Range&) = default;
  };
  static constexpr std::size_t kMostRanges = 128;

  RankSet() = default;
  RankSet(int rank) : ranges_{{rank, rank}}, count_(1) {}
  /// `ranges` are the listed ranges, `count` is the number of all ranks. The arguments are not
  /// checked; see `is_valid`.
  RankSet(std::vector<Range> ranges, std::size_t count);

  bool is_valid() const;
  bool is_empty() const { return count_ == 0; }
  /// Number of all ranks, listed or not.
  std::size_t count() const { return count_; }
  /// The listed ranges, ascending; at least one unless the set is empty.
  const std::vector<Range>& ranges() const { return ranges_; }
  std::size_t listed() const;
  int first() const { return ranges_.front().first; }

  /// Adds the ranks of `others`. Before: none of them is in this set.
  void add(const RankSet& others);
  /// Whether this set lists every rank that `others` lists.
  bool lists(const RankSet& others) const;

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  std::vector<Range> ranges_;
  std::size_t count_ = 0;
};

/// Describes a set: "rank 3", "ranks 0, 2-5", "ranks 0, 2 and 7 more".
std::string ranges_text(const RankSet& ranks);

/// Describes a set as above, but lists each rank of a small set: "ranks 0, 2, 3".
std::string ranks_text(const RankSet& ranks);

}  // namespace kolo
