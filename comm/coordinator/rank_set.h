#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// A set of ranks in bounded memory: it lists the first ranges of consecutive ranks, and counts all
/// ranks. Thousands of consecutive ranks take as much memory as one.
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
  /// `ranges` are the listed ranges, `count` is the number of all ranks. If the ranges do not
  /// ascend without overlap, `is_valid` returns false.
  RankSet(std::vector<Range> ranges, std::size_t count);

  bool is_valid() const;
  bool is_empty() const { return count_ == 0; }
  /// All ranks, listed or not.
  std::size_t count() const { return count_; }
  /// The listed ranges; at least one unless the set is empty.
  const std::vector<Range>& ranges() const { return ranges_; }
  std::size_t listed() const;
  int first() const { return ranges_.front().first; }

  /// Adds ranks that are not in this set.
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

/// As above, with small ranges written out: "ranks 0, 2, 3".
std::string ranks_text(const RankSet& ranks);

}  // namespace kolo
