#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// Some ranks of a job, of bounded size: the first ranges of consecutive ranks, and how many ranks
/// there are in all. Thousands of ranks that lie together cost as much as one.
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
  /// Ranges that ascend without overlap, of `count` ranks with those that are not listed. False
  /// from `is_valid` if they do not.
  RankSet(std::vector<Range> ranges, std::size_t count);

  bool is_valid() const;
  bool is_empty() const { return count_ == 0; }
  /// All ranks, listed or not.
  std::size_t count() const { return count_; }
  /// The ranks that are listed; at least one of a set that is not empty.
  const std::vector<Range>& ranges() const { return ranges_; }
  std::size_t listed() const;
  int first() const { return ranges_.front().first; }

  /// Takes ranks that are not in this set.
  void add(const RankSet& others);
  /// Whether every rank that `others` lists is listed here.
  bool lists(const RankSet& others) const;

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  std::vector<Range> ranges_;
  std::size_t count_ = 0;
};

/// "rank 3", "ranks 0, 2-5", "ranks 0, 2, ... and 7 more".
std::string ranges_text(const RankSet& ranks);

/// The same with few ranks in full: "ranks 0, 2, 3".
std::string ranks_text(const RankSet& ranks);

}  // namespace kolo
