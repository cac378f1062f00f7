#include "comm/coordinator/stall_inspector.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/coordinator/stall_table.h"

namespace kolo {
namespace {

constexpr std::size_t kMostGroupsQuoted = 8;

/// "rank 3" or "ranks 0, 1, 2".
std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

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

StallInspector::StallInspector(int world_size, const Limits& limits)
    : world_size_(world_size), limits_(limits) {}

void StallInspector::stalled(const Topic& topic) { stalled_.insert(topic); }

void StallInspector::conflict(const Topic& topic) { conflicts_.push_back(topic); }

void StallInspector::tick(TimePoint now) {
  if (!asking_ && confirm_at_ && now >= *confirm_at_) is_due_ = true;
}

std::optional<Frame> StallInspector::next_query() {
  if (!has_query()) return std::nullopt;
  asking_ = true;
  reports_.clear();
  asked_.clear();
  Frame query{.kind = FrameKind::kQuery, .least = ++query_};
  if (!conflicts_.empty()) {
    query.topic = conflicts_.front();
    conflict_ = query.topic;
    conflicts_.pop_front();
    return query;
  }
  is_due_ = false;
  is_complaint_ = !stalled_.empty();
  // A rank keeps no list of the iterations that have ended there, so it is told which to report.
  const auto ask = [&](const Topic& topic) {
    if (is_bucket_key(topic.key)) asked_.insert(topic);
  };
  for (const Topic& topic : std::exchange(stalled_, {})) ask(topic);
  for (const Topic& topic : blocked_) ask(topic);
  for (const auto& [rank, topic] : suspicion_.pending) ask(topic);
  query.topics.assign(asked_.begin(), asked_.end());
  return query;
}

std::optional<StallInspector::Finding> StallInspector::report(int rank, const Frame& frame,
                                                              TimePoint now) {
  if (!asking_ || frame.least != query_) return std::nullopt;
  Report& report = reports_[rank];
  report = {frame.pending, frame.all_wait, frame.last};
  std::erase_if(report.pending,
                [&](const PendingTopic& entry) { return rejected_.contains(entry.topic); });
  std::ranges::stable_sort(report.pending, {}, &PendingTopic::topic);
  if (static_cast<int>(reports_.size()) < world_size_) return std::nullopt;
  asking_ = false;
  std::optional<Finding> finding = conclude(now);
  if (finding) rejected_.insert(finding->topics.begin(), finding->topics.end());
  return finding;
}

std::vector<int> StallInspector::silent_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; asking_ && rank < world_size_; ++rank) {
    if (!reports_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<StallInspector::Finding> StallInspector::conclude(TimePoint now) {
  if (conflict_) return explain_conflict(*std::exchange(conflict_, std::nullopt));
  blocked_.clear();
  for (const auto& [rank, report] : reports_) {
    for (const PendingTopic& entry : report.pending) {
      if (entry.blocking) blocked_.insert(entry.topic);
    }
  }
  confirm_at_.reset();
  Suspicion suspicion = find_disagreement();
  if (suspicion.pending.empty()) suspicion = find_deadlock();
  std::optional<Finding> finding;
  if (suspicion.pending.empty()) {
    suspicion_ = {};
    finding = follow_stalls(now);
  } else if (is_confirmed(suspicion, now)) {
    finding = explain(suspicion);
  }
  // What nobody complained of has not been asked about yet.
  if (is_complaint_ && !finding &&
      std::any_of(blocked_.begin(), blocked_.end(),
                  [&](const Topic& t) { return is_bucket_key(t.key) && !asked_.contains(t); })) {
    confirm_at_ = now;
  }
  return finding;
}

const PendingTopic* StallInspector::find_pending(int rank, const Topic& topic) const {
  const std::vector<PendingTopic>& pending = reports_.at(rank).pending;
  const auto entry = std::ranges::lower_bound(pending, topic, {}, &PendingTopic::topic);
  return entry != pending.end() && entry->topic == topic ? &*entry : nullptr;
}

bool StallInspector::has_submitted(int rank, const Topic& topic) const {
  if (find_pending(rank, topic) != nullptr) return true;
  // A bucket's iteration may have ended at a rank that was not asked about it.
  return is_bucket_key(topic.key) && !asked_.contains(topic);
}

std::vector<int> StallInspector::ranks_without(const Topic& topic) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!has_submitted(rank, topic)) ranks.push_back(rank);
  }
  return ranks;
}

// --- Disagreement -------------------------------------------------------------------------------

StallInspector::Finding StallInspector::explain_conflict(const Topic& topic) const {
  std::map<int, std::vector<std::string>> lines;
  std::size_t longest = 0;
  for (const auto& [rank, report] : reports_) {
    if (const PendingTopic* entry = find_pending(rank, topic)) {
      lines[rank] = lines_of(entry->text);
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
  return {{topic},
          Error{.code = ErrorCode::kMismatch,
                .verb = "agree",
                .what = "ranks disagree: " + quote(ranks_by_line, "submits", "submit")}};
}

StallInspector::Suspicion StallInspector::find_disagreement() const {
  std::map<std::uint64_t, std::vector<std::pair<int, const PendingTopic*>>> uses;  // by name
  for (const auto& [rank, report] : reports_) {
    for (const PendingTopic& entry : report.pending) {
      if (entry.name != 0) uses[entry.name].emplace_back(rank, &entry);
    }
  }
  Suspicion suspicion{.is_disagreement = true};
  for (const auto& [name, entries] : uses) {
    for (const auto& [rank, entry] : entries) {
      for (const auto& [other_rank, other] : entries) {
        if (other->topic == entry->topic || has_submitted(other_rank, entry->topic) ||
            has_submitted(rank, other->topic)) {
          continue;
        }
        suspicion.pending.emplace(rank, entry->topic);
        suspicion.pending.emplace(other_rank, other->topic);
      }
    }
  }
  return suspicion;
}

// --- Deadlock -----------------------------------------------------------------------------------

StallInspector::Suspicion StallInspector::find_deadlock() const {
  std::map<int, std::vector<Topic>> stuck;  // by rank: what its threads wait for
  for (const auto& [rank, report] : reports_) {
    if (!report.all_wait) continue;
    for (const PendingTopic& entry : report.pending) {
      if (entry.blocking) stuck[rank].push_back(entry.topic);
    }
  }
  const auto is_hopeless = [&](const Topic& topic) {
    return std::any_of(stuck.begin(), stuck.end(),
                       [&](const auto& other) { return !has_submitted(other.first, topic); });
  };
  // What remains is the greatest set of ranks in which nobody can go on.
  while (std::erase_if(stuck, [&](const auto& rank) {
           return !std::all_of(rank.second.begin(), rank.second.end(), is_hopeless);
         }) > 0) {
  }
  Suspicion suspicion;
  for (const auto& [rank, topics] : stuck) {
    for (const Topic& topic : topics) suspicion.pending.emplace(rank, topic);
  }
  return suspicion;
}

/// Whether an inquiry long enough ago showed the same of each of these ranks.
bool StallInspector::is_confirmed(const Suspicion& suspicion, TimePoint now) {
  std::set<int> ranks;
  for (const auto& [rank, topic] : suspicion.pending) ranks.insert(rank);
  std::erase_if(suspicion_.pending,
                [&](const auto& entry) { return !ranks.contains(entry.first); });
  const bool is_same = suspicion_.is_disagreement == suspicion.is_disagreement &&
                       suspicion_.pending == suspicion.pending;
  if (!is_same) {
    suspicion_ = suspicion;
    suspected_since_ = now;
  }
  if (is_same && now - suspected_since_ >= limits_.confirm_after) {
    suspicion_ = {};
    return true;
  }
  confirm_at_ = later(suspected_since_, limits_.confirm_after);
  return false;
}

StallInspector::Finding StallInspector::explain(const Suspicion& suspicion) const {
  Finding finding;
  std::map<std::string, std::vector<int>> ranks_by_text;
  for (const auto& [rank, topic] : suspicion.pending) {
    ranks_by_text[first_line(find_pending(rank, topic)->text)].push_back(rank);
    finding.topics.push_back(topic);
  }
  std::sort(finding.topics.begin(), finding.topics.end());
  finding.topics.erase(std::unique(finding.topics.begin(), finding.topics.end()),
                       finding.topics.end());
  finding.error =
      Error{.code = ErrorCode::kMismatch,
            .verb = "agree",
            .what = suspicion.is_disagreement
                        ? "ranks disagree: " + quote(ranks_by_text, "submits", "submit")
                        : "ranks wait for different tensors: " +
                              quote(ranks_by_text, "waits for", "wait for") +
                              "; every thread that uses Kolo on these ranks is waiting"};
  return finding;
}

// --- Stalls -------------------------------------------------------------------------------------

/// Whether a rank that waits for `topic` and a rank that has not submitted it wait for each other.
bool StallInspector::is_crossed(const Topic& topic) const {
  for (const int missing : ranks_without(topic)) {
    for (const PendingTopic& other : reports_.at(missing).pending) {
      if (!other.blocking) continue;
      for (const auto& [rank, report] : reports_) {
        const PendingTopic* entry = find_pending(rank, topic);
        if (entry != nullptr && entry->blocking && !has_submitted(rank, other.topic)) return true;
      }
    }
  }
  return false;
}

std::vector<int> StallInspector::ranks_waiting(const Topic& topic) const {
  std::vector<int> ranks;
  for (const auto& [rank, report] : reports_) {
    const PendingTopic* entry = find_pending(rank, topic);
    if (entry != nullptr && entry->blocking) ranks.push_back(rank);
  }
  return ranks;
}

/// A stall is due once by itself, and then whenever the longest wait of the last table has doubled.
bool StallInspector::is_table_due(TimePoint now) const {
  return std::ranges::any_of(stalls_, [&](const auto& entry) {
    const Stall& stall = entry.second;
    return now - stall.since >= limits_.warn_after && (!stall.is_in_table || now >= next_table_);
  });
}

/// Of all that is waited for in vain, the longest wait first.
std::string StallInspector::make_table(TimePoint now) {
  std::vector<StalledTensor> tensors;
  std::set<int> missing;
  Duration longest{};
  for (auto& [topic, stall] : stalls_) {
    stall.is_in_table = true;
    longest = std::max(longest, now - stall.since);
    StalledTensor tensor{
        .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - stall.since),
        .waiting = ranks_waiting(topic),
        .missing = ranks_without(topic)};
    tensor.text = first_line(find_pending(tensor.waiting.front(), topic)->text);
    missing.insert(tensor.missing.begin(), tensor.missing.end());
    tensors.push_back(std::move(tensor));
  }
  next_table_ = later(now, longest);
  std::ranges::stable_sort(tensors, std::ranges::greater{}, &StalledTensor::age);
  std::vector<MissingRank> ranks;
  for (const int rank : missing) {
    const Report& report = reports_.at(rank);
    MissingRank entry{.rank = rank, .last = report.last};
    for (const PendingTopic& pending : report.pending) {
      if (pending.blocking) entry.waits_for.push_back(first_line(pending.text));
    }
    ranks.push_back(std::move(entry));
  }
  return stall_table(tensors, ranks);
}

/// "rank 0 waits for 'a', which rank 1 has not submitted; ...".
std::string StallInspector::describe_stalls(const std::vector<Topic>& topics) const {
  std::string text;
  for (std::size_t i = 0; i < topics.size(); ++i) {
    if (i > 0) text += "; ";
    if (i == kMostGroupsQuoted) return text + "...";
    const std::vector<int> waiting = ranks_waiting(topics[i]);
    const std::string name = first_line(find_pending(waiting.back(), topics[i])->text);
    const std::vector<int> missing = ranks_without(topics[i]);
    text += fmt::format("{} {} for {}, which {} {} not submitted", ranks_text(waiting),
                        waiting.size() == 1 ? "waits" : "wait", name, ranks_text(missing),
                        missing.size() == 1 ? "has" : "have");
  }
  return text;
}

std::optional<StallInspector::Finding> StallInspector::follow_stalls(TimePoint now) {
  const std::map<Topic, Stall> before = std::exchange(stalls_, {});
  std::vector<Topic> crossed, forgotten, late;
  bool is_news = false;
  for (const Topic& topic : blocked_) {
    if (ranks_without(topic).empty()) continue;
    const auto known = before.find(topic);
    Stall stall = known == before.end() ? Stall{.since = now} : known->second;
    if (now - stall.since >= limits_.stall_after) late.push_back(topic);
    if (!is_crossed(topic)) {
      stall.crossed_since.reset();
      const bool is_long = (now - stall.since) / kPeriodsBeforeNote >= limits_.confirm_after;
      if (!stall.is_noted && is_long) {
        stall.is_noted = true;
        forgotten.push_back(topic);
      }
    } else {
      crossed.push_back(topic);
      if (!stall.crossed_since) stall.crossed_since = now;
      const bool is_lasting = now - *stall.crossed_since >= limits_.confirm_after;
      if (!stall.is_warned && is_lasting) is_news = stall.is_warned = true;
      if (!stall.is_warned) confirm_at_ = later(*stall.crossed_since, limits_.confirm_after);
    }
    stalls_.emplace(topic, stall);
  }
  if (!late.empty()) {
    for (const Topic& topic : late) stalls_.erase(topic);
    const double seconds = std::chrono::duration<double>(limits_.stall_after).count();
    return Finding{late, Error{.code = ErrorCode::kStall,
                               .verb = "agree",
                               .what = fmt::format("no progress for {:.3g} s: {}", seconds,
                                                   describe_stalls(late))}};
  }
  if (is_news) {
    warning_ = {.text =
                    "ranks wait for different tensors, which other threads of theirs may still "
                    "submit: " +
                    describe_stalls(crossed),
                .is_for_all_ranks = true};
  } else if (is_table_due(now)) {
    warning_ = {.text = make_table(now)};
  } else if (!forgotten.empty()) {
    warning_ = {.text = "still waiting: " + describe_stalls(forgotten) +
                        "; that rank is busy, or its program leaves this tensor out"};
  }
  return std::nullopt;
}

}  // namespace kolo
