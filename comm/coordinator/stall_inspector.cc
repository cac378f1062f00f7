#include "comm/coordinator/stall_inspector.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kolo {
namespace {

constexpr std::size_t kMostGroupsQuoted = 8;

/// "rank 3" or "ranks 0, 1, 2".
std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Whether an entry of a rank's report says that the rank has submitted `topic`.
bool covers(const PendingTopic& entry, const Topic& topic) {
  if (!entry.past) return entry.topic == topic;
  return entry.topic.key == topic.key && topic.round <= entry.topic.round;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// "rank 1 SINGULAR a; ranks 0, 2 PLURAL b".
std::string quote(const std::map<std::string, std::vector<int>>& ranks_by_text,
                  std::string_view singular, std::string_view plural) {
  std::vector<std::pair<std::vector<int>, std::string>> groups;
  for (const auto& [text, ranks] : ranks_by_text) groups.emplace_back(ranks, text);
  std::sort(groups.begin(), groups.end());
  std::string result;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i == kMostGroupsQuoted) return result + "; ...";
    const bool one = groups[i].first.size() == 1;
    result += fmt::format("{}{} {} {}", i == 0 ? "" : "; ", ranks_text(groups[i].first),
                          one ? singular : plural, groups[i].second);
  }
  return result;
}

}  // namespace

StallInspector::StallInspector(int world_size) : world_size_(world_size) {}

void StallInspector::stalled(const Topic& topic) {
  if (asking_ && current_.topic == topic) return;
  for (const Question& question : questions_) {
    if (question.topic == topic) return;
  }
  questions_.push_back({topic, false});
}

void StallInspector::conflict(const Topic& topic) { questions_.push_front({topic, true}); }

std::optional<Frame> StallInspector::next_query() {
  if (!has_query()) return std::nullopt;
  current_ = questions_.front();
  questions_.pop_front();
  asking_ = true;
  reports_.clear();
  return Frame{.kind = FrameKind::kQuery, .topic = current_.topic, .least = ++query_};
}

std::optional<StallInspector::Finding> StallInspector::report(int rank, const Frame& frame) {
  if (!asking_ || frame.least != query_) return std::nullopt;
  reports_[rank] = frame.pending;
  if (static_cast<int>(reports_.size()) < world_size_) return std::nullopt;
  asking_ = false;
  return conclude();
}

std::optional<StallInspector::Finding> StallInspector::conclude() {
  return current_.is_conflict ? explain_conflict() : find_circle();
}

bool StallInspector::has_pending(int rank, const Topic& topic) const {
  const auto& pending = reports_.at(rank);
  return std::any_of(pending.begin(), pending.end(),
                     [&](const PendingTopic& other) { return covers(other, topic); });
}

std::optional<StallInspector::Finding> StallInspector::explain_conflict() const {
  std::map<int, std::vector<std::string>> lines;
  std::size_t longest = 0;
  for (const auto& [rank, pending] : reports_) {
    for (const PendingTopic& other : pending) {
      if (other.topic != current_.topic) continue;
      lines[rank] = lines_of(other.text);
      longest = std::max(longest, lines[rank].size());
    }
  }
  std::map<std::string, std::vector<int>> ranks_by_line;
  for (std::size_t i = 0; i < longest && ranks_by_line.size() < 2; ++i) {
    ranks_by_line.clear();
    for (const auto& [rank, text] : lines) {
      ranks_by_line[i < text.size() ? text[i] : "nothing more"].push_back(rank);
    }
  }
  return Finding{{current_.topic},
                 Error{.code = ErrorCode::kMismatch,
                       .verb = "agree",
                       .what = "ranks disagree: " + quote(ranks_by_line, "submits", "submit")}};
}

void StallInspector::note_missing_ranks() {
  std::vector<int> missing;
  std::string text;
  for (const auto& [rank, pending] : reports_) {
    const auto it = std::find_if(pending.begin(), pending.end(), [&](const PendingTopic& other) {
      return covers(other, current_.topic);
    });
    if (it == pending.end()) {
      missing.push_back(rank);
    } else if (!it->past) {
      text = it->text.substr(0, it->text.find('\n'));
    }
  }
  if (text.empty() || missing.empty()) {
    inquiries_.erase(current_.topic);
  } else if (++inquiries_[current_.topic] == kInquiriesBeforeNote) {
    note_ =
        fmt::format("still waiting for {} to submit {}; busy, or this tensor is forgotten there",
                    ranks_text(missing), text);
  }
}

std::optional<StallInspector::Finding> StallInspector::find_circle() {
  // Greatest set of (rank, topic it blocks on) in which each topic is missing on a rank of the set.
  std::set<std::pair<int, Topic>> circle;
  std::map<std::pair<int, Topic>, std::string> text_of;  // of what the rank itself submitted
  for (const auto& [rank, pending] : reports_) {
    for (const PendingTopic& other : pending) {
      if (!other.blocking) continue;
      circle.emplace(rank, other.topic);
      text_of[{rank, other.topic}] = other.text.substr(0, other.text.find('\n'));
    }
  }
  const auto stuck = [&](const std::pair<int, Topic>& wait) {
    return std::any_of(circle.begin(), circle.end(), [&](const std::pair<int, Topic>& other) {
      return !has_pending(other.first, wait.second);
    });
  };
  while (std::erase_if(circle, [&](const auto& wait) { return !stuck(wait); }) > 0) {
  }
  const std::set<std::pair<int, Topic>> before = std::exchange(suspected_, circle);
  if (circle.empty()) {
    note_missing_ranks();
    return std::nullopt;
  }
  if (!std::includes(before.begin(), before.end(), circle.begin(), circle.end())) {
    questions_.push_back(current_);
    return std::nullopt;
  }
  suspected_.clear();

  Finding finding;
  std::map<std::string, std::vector<int>> ranks_by_text;
  for (const auto& wait : circle) {
    ranks_by_text[text_of[wait]].push_back(wait.first);
    finding.topics.push_back(wait.second);
  }
  std::sort(finding.topics.begin(), finding.topics.end());
  finding.topics.erase(std::unique(finding.topics.begin(), finding.topics.end()),
                       finding.topics.end());
  finding.error = Error{
      .code = ErrorCode::kMismatch,
      .verb = "agree",
      .what = "ranks wait for different tensors: " + quote(ranks_by_text, "waits for", "wait for")};
  return finding;
}

}  // namespace kolo
