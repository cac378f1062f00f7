#include "comm/coordinator/rank_set.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace kolo {
namespace {

constexpr std::size_t kMostRangesShown = 8;
constexpr std::size_t kMostRanksInFull = 8;

std::size_t size_of(const RankSet::Range& range) {
  return static_cast<std::size_t>(range.last - range.first) + 1;
}

}  // namespace

RankSet::RankSet(std::vector<Range> ranges, std::size_t count)
    : ranges_(std::move(ranges)), count_(count) {}

bool RankSet::is_valid() const {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].first < 0 || ranges_[i].first > ranges_[i].last) return false;
    if (i > 0 && ranges_[i].first <= ranges_[i - 1].last) return false;
  }
  return !ranges_.empty() && ranges_.size() <= kMostRanges && listed() <= count_;
}

std::size_t RankSet::listed() const {
  std::size_t ranks = 0;
  for (const Range& range : ranges_) ranks += size_of(range);
  return ranks;
}

void RankSet::add(const RankSet& others) {
  std::vector<Range> both;
  both.reserve(ranges_.size() + others.ranges_.size());
  std::ranges::merge(ranges_, others.ranges_, std::back_inserter(both), {}, &Range::first,
                     &Range::first);
  ranges_.clear();
  for (const Range& range : both) {
    if (!ranges_.empty() && range.first == ranges_.back().last + 1) {
      ranges_.back().last = range.last;
    } else if (ranges_.size() < kMostRanges) {
      ranges_.push_back(range);
    } else {
      break;
    }
  }
  count_ += others.count_;
}

bool RankSet::lists(const RankSet& others) const {
  return std::ranges::all_of(others.ranges_, [&](const Range& range) {
    const auto after = std::ranges::upper_bound(ranges_, range.first, {}, &Range::first);
    return after != ranges_.begin() && range.last <= std::prev(after)->last;
  });
}

std::string ranges_text(const RankSet& ranks) {
  std::string text = ranks.count() == 1 ? "rank " : "ranks ";
  std::size_t shown = 0, ranges = 0;
  for (const RankSet::Range& range : ranks.ranges()) {
    if (ranges == kMostRangesShown) break;
    text += fmt::format("{}{}", ranges == 0 ? "" : ", ", range.first);
    if (range.last > range.first) text += fmt::format("-{}", range.last);
    shown += size_of(range);
    ++ranges;
  }
  return shown == ranks.count() ? text : text + fmt::format(" and {} more", ranks.count() - shown);
}

std::string ranks_text(const RankSet& ranks) {
  if (ranks.count() > kMostRanksInFull || ranks.listed() < ranks.count()) return ranges_text(ranks);
  std::string text = ranks.count() == 1 ? "rank" : "ranks";
  for (const RankSet::Range& range : ranks.ranges()) {
    for (int rank = range.first; rank <= range.last; ++rank) {
      text += fmt::format("{}{}", text.ends_with('k') || text.ends_with('s') ? " " : ", ", rank);
    }
  }
  return text;
}

}  // namespace kolo
