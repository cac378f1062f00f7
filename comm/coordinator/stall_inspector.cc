#include "comm/coordinator/stall_inspector.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "comm/base/text.h"
#include "comm/coordinator/stall_table.h"

namespace kolo {
namespace {

constexpr std::size_t kMostGroupsQuoted = 8;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Returns the tensor that all lines `line_of(each)` name, or an empty text if they differ.
template <typename All, typename LineOf>
std::string common_tensor(const All& all, LineOf line_of) {
  std::string tensor;
  for (const auto& each : all) {
    const std::string line = line_of(each);
    const std::string_view other = tensor_of(line);
    if (other.empty() || (!tensor.empty() && tensor != other)) return {};
    tensor = other;
  }
  return tensor;
}

std::string common_tensor(const std::map<std::string, RankSet>& ranks_by_line) {
  return common_tensor(ranks_by_line, [](const auto& ranks) { return ranks.first; });
}

/// Returns "rank 1 SINGULAR a; ranks 0, 2 PLURAL b".
std::string quote(const std::map<std::string, RankSet>& ranks_by_text, std::string_view singular,
                  std::string_view plural) {
  std::vector<std::pair<std::string, RankSet>> kinds(ranks_by_text.begin(), ranks_by_text.end());
  std::ranges::stable_sort(kinds, {}, [](const auto& kind) { return kind.second.first(); });
  std::string result;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i == kMostGroupsQuoted) return result + "; ...";
    const auto& [text, ranks] = kinds[i];
    result += fmt::format("{}{} {} {}", i == 0 ? "" : "; ", ranks_text(ranks),
                          ranks.count() == 1 ? singular : plural, text);
  }
  return result;
}

}  // namespace

StallInspector::StallInspector(int world_size, const Limits& limits)
    : world_size_(static_cast<std::size_t>(world_size)), limits_(limits) {}

void StallInspector::stalled(const ProposalKey& key) { stalled_.insert(key); }

void StallInspector::conflict(const ProposalKey& key) { conflicts_.push_back(key); }

void StallInspector::forget(std::uint64_t hash) {
  suspects_.clear();
  std::erase_if(rejected_, [&](const ProposalKey& key) { return key.hash == hash; });
  std::erase_if(stalls_, [&](const auto& stall) { return stall.first.hash == hash; });
}

void StallInspector::tick(TimePoint now) {
  if (!asking_ && confirm_at_ && now >= *confirm_at_) is_due_ = true;
}

std::optional<Frame> StallInspector::next_query(TimePoint now) {
  if (!has_query()) return std::nullopt;
  asking_ = true;
  asked_at_ = now;
  asked_.clear();
  Frame query{.kind = FrameKind::kQuery, .least = ++query_};
  if (!conflicts_.empty()) {
    query.key = conflicts_.front();
    conflict_ = query.key;
    conflicts_.pop_front();
    return query;
  }
  is_due_ = false;
  is_complaint_ = !stalled_.empty();
  // A rank has no list of ended iterations, so the query names the iterations to report.
  const auto ask = [&](const ProposalKey& key) {
    if (is_bucket_hash(key.hash)) asked_.insert(key);
  };
  for (const ProposalKey& key : std::exchange(stalled_, {})) ask(key);
  for (const ProposalKey& key : blocked_) ask(key);
  for (const Suspect& suspect : suspects_) std::ranges::for_each(suspect.keys, ask);
  query.keys.assign(asked_.begin(), asked_.end());
  return query;
}

std::optional<StallInspector::Finding> StallInspector::report(AggregatedReport report,
                                                              TimePoint now) {
  if (!std::exchange(asking_, false)) return std::nullopt;
  report_ = std::move(report);
  for (AlikeRanks& ranks : report_.alike) {
    std::erase_if(ranks.pending,
                  [&](const PendingKey& entry) { return rejected_.contains(entry.key); });
  }
  std::optional<Finding> finding = conclude(now);
  if (finding) rejected_.insert(finding->keys.begin(), finding->keys.end());
  return finding;
}

std::optional<StallInspector::Finding> StallInspector::conclude(TimePoint now) {
  if (conflict_) return explain_conflict(*std::exchange(conflict_, std::nullopt));
  blocked_.clear();
  for (const AlikeRanks& ranks : report_.alike) {
    for (const PendingKey& entry : ranks.pending) {
      if (entry.blocking) blocked_.insert(entry.key);
    }
  }
  confirm_at_.reset();
  Suspicion suspicion = find_disagreement();
  if (suspicion.pending.empty()) suspicion = find_deadlock();
  std::optional<Finding> finding;
  if (suspicion.pending.empty()) {
    suspects_.clear();
    finding = follow_stalls(now);
  } else if (is_confirmed(suspicion, now)) {
    finding = explain(suspicion);
  }
  // Asks again at once if ranks wait for bucket iterations that this query did not name.
  if (is_complaint_ && !finding &&
      std::any_of(blocked_.begin(), blocked_.end(),
                  [&](const auto& t) { return is_bucket_hash(t.hash) && !asked_.contains(t); })) {
    confirm_at_ = now;
  }
  return finding;
}

const PendingKey* StallInspector::find_pending(const AlikeRanks& ranks, const ProposalKey& key) {
  const auto entry = std::ranges::lower_bound(ranks.pending, key, {}, &PendingKey::key);
  return entry != ranks.pending.end() && entry->key == key ? &*entry : nullptr;
}

bool StallInspector::waits(const AlikeRanks& ranks, const ProposalKey& key) {
  const PendingKey* entry = find_pending(ranks, key);
  return entry != nullptr && entry->blocking;
}

bool StallInspector::has_submitted(const AlikeRanks& ranks, const ProposalKey& key) const {
  if (find_pending(ranks, key) != nullptr) return true;
  if (report_.unknown_from && key >= *report_.unknown_from) return true;
  // A rank that was not asked about a bucket's iteration may have ended it.
  return is_bucket_hash(key.hash) && !asked_.contains(key);
}

RankSet StallInspector::ranks_waiting(const ProposalKey& key) const {
  RankSet waiting;
  for (const AlikeRanks& ranks : report_.alike) {
    if (waits(ranks, key)) waiting.add(ranks.ranks);
  }
  return waiting;
}

RankSet StallInspector::ranks_without(const ProposalKey& key) const {
  RankSet missing;
  for (const AlikeRanks& ranks : report_.alike) {
    if (!has_submitted(ranks, key)) missing.add(ranks.ranks);
  }
  return missing;
}

// --- Disagreement -------------------------------------------------------------------------------

StallInspector::Finding StallInspector::explain_conflict(const ProposalKey& key) const {
  std::vector<std::pair<const RankSet*, std::vector<std::string>>> lines;
  std::size_t longest = 0;
  for (const AlikeRanks& ranks : report_.alike) {
    if (const PendingKey* entry = find_pending(ranks, key)) {
      lines.emplace_back(&ranks.ranks, lines_of(entry->text));
      longest = std::max(longest, lines.back().second.size());
    }
  }
  std::map<std::string, RankSet> ranks_by_line;
  for (std::size_t i = 0; i < longest && ranks_by_line.size() < 2; ++i) {
    ranks_by_line.clear();
    for (const auto& [ranks, text] : lines) {
      ranks_by_line[i < text.size() ? text[i] : "nothing more"].add(*ranks);
    }
  }
  return {{key},
          Error{.code = ErrorCode::kMismatch,
                .verb = "agree",
                .bucket = common_tensor(ranks_by_line),
                .what = "ranks disagree: " + quote(ranks_by_line, "submits", "submit") +
                        (report_.mute.empty() ? "" : ranks_unheard())}};
}

StallInspector::Suspicion StallInspector::find_disagreement() const {
  using Use = std::pair<const AlikeRanks*, const PendingKey*>;
  std::map<std::uint64_t, std::vector<Use>> uses;  // by sequence
  for (const AlikeRanks& ranks : report_.alike) {
    for (const PendingKey& entry : ranks.pending) {
      if (entry.sequence != 0) uses[entry.sequence].emplace_back(&ranks, &entry);
    }
  }
  Suspicion suspicion{.is_disagreement = true};
  for (const auto& [sequence, entries] : uses) {
    for (const auto& [ranks, entry] : entries) {
      for (const auto& [other_ranks, other] : entries) {
        const bool is_same = other->key == entry->key;
        if (is_same
                ? first_line(other->text) == first_line(entry->text)
                : has_submitted(*other_ranks, entry->key) || has_submitted(*ranks, other->key)) {
          continue;
        }
        suspicion.pending[ranks].insert(entry->key);
        suspicion.pending[other_ranks].insert(other->key);
      }
    }
  }
  return suspicion;
}

// --- Deadlock -----------------------------------------------------------------------------------

StallInspector::Suspicion StallInspector::find_deadlock() const {
  Suspicion stuck;  // proposals for which all threads of some ranks wait
  for (const AlikeRanks& ranks : report_.alike) {
    if (!ranks.all_wait) continue;
    for (const PendingKey& entry : ranks.pending) {
      if (entry.blocking) stuck.pending[&ranks].insert(entry.key);
    }
  }
  const auto is_hopeless = [&](const ProposalKey& key) {
    return std::any_of(stuck.pending.begin(), stuck.pending.end(),
                       [&](const auto& other) { return !has_submitted(*other.first, key); });
  };
  // Removes ranks that can proceed until no such rank is left.
  while (std::erase_if(stuck.pending, [&](const auto& ranks) {
           return !std::all_of(ranks.second.begin(), ranks.second.end(), is_hopeless);
         }) > 0) {
  }
  return stuck;
}

/// Whether an inquiry at least `confirm_after` ago showed the same suspicion for all these ranks.
bool StallInspector::is_confirmed(const Suspicion& suspicion, TimePoint now) {
  std::vector<Suspect> suspects;
  for (const auto& [ranks, keys] : suspicion.pending) suspects.push_back({ranks->ranks, keys});
  const bool is_same = suspects_disagree_ == suspicion.is_disagreement &&
                       std::ranges::all_of(suspects, [&](const Suspect& suspect) {
                         RankSet before;
                         for (const Suspect& other : suspects_) {
                           if (other.keys == suspect.keys) before.add(other.ranks);
                         }
                         return before.lists(suspect.ranks);
                       });
  suspects_ = std::move(suspects);
  suspects_disagree_ = suspicion.is_disagreement;
  if (!is_same) suspected_since_ = now;
  if (is_same && now - suspected_since_ >= limits_.confirm_after) {
    suspects_.clear();
    return true;
  }
  confirm_at_ = later(suspected_since_, limits_.confirm_after);
  return false;
}

StallInspector::Finding StallInspector::explain(const Suspicion& suspicion) const {
  std::set<ProposalKey> rejected;
  std::map<std::string, std::set<const AlikeRanks*>> kinds_by_text;
  for (const auto& [ranks, keys] : suspicion.pending) {
    for (const ProposalKey& key : keys) {
      kinds_by_text[first_line(find_pending(*ranks, key)->text)].insert(ranks);
      rejected.insert(key);
    }
  }
  std::map<std::string, RankSet> ranks_by_text;
  for (const auto& [text, kinds] : kinds_by_text) {
    for (const AlikeRanks* ranks : kinds) ranks_by_text[text].add(ranks->ranks);
  }
  const std::string what =
      suspicion.is_disagreement
          ? "ranks disagree: " + quote(ranks_by_text, "submits", "submit")
          : "ranks wait for different tensors: " + quote(ranks_by_text, "waits for", "wait for") +
                "; every thread that uses Kolo on these ranks is waiting";
  return {{rejected.begin(), rejected.end()},
          Error{.code = ErrorCode::kMismatch,
                .verb = "agree",
                .bucket = common_tensor(ranks_by_text),
                .what = what + ranks_unheard()}};
}

// --- Stalls -------------------------------------------------------------------------------------

/// Whether a rank that waits for `key` and a rank that has not submitted `key` wait for each other.
bool StallInspector::is_crossed(const ProposalKey& key) const {
  const auto waits_for = [&](const AlikeRanks& ranks) { return waits(ranks, key); };
  return std::ranges::any_of(report_.alike, [&](const AlikeRanks& missing) {
    if (has_submitted(missing, key)) return false;
    return std::ranges::any_of(missing.pending, [&](const PendingKey& other) {
      return other.blocking && std::ranges::any_of(report_.alike, [&](const AlikeRanks& ranks) {
               return waits_for(ranks) && !has_submitted(ranks, other.key);
             });
    });
  });
}

/// Whether a table is due: for a new stall, and when the last table's longest wait has doubled.
bool StallInspector::is_table_due(TimePoint now) const {
  if (limits_.warn_after == Duration::max()) return false;
  return std::ranges::any_of(stalls_, [&](const auto& entry) {
    const Stall& stall = entry.second;
    const bool is_long = now - stall.since >= limits_.warn_after || !report_.mute.empty();
    return is_long && (!stall.is_in_table || now >= next_table_);
  });
}

/// Makes the table of all stalls, with the longest wait first.
std::string StallInspector::make_table(TimePoint now) {
  std::vector<StalledTensor> tensors;
  Duration longest{};
  for (auto& [key, stall] : stalls_) {
    stall.is_in_table = true;
    longest = std::max(longest, now - stall.since);
    tensors.push_back(
        {.text = text_of(key),
         .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - stall.since),
         .waiting = ranks_waiting(key),
         .missing = ranks_without(key)});
  }
  next_table_ = later(now, longest);
  std::ranges::stable_sort(tensors, std::ranges::greater{}, &StalledTensor::age);
  MissingRanks missing;
  for (const AlikeRanks& ranks : report_.alike) {
    if (std::ranges::all_of(stalls_,
                            [&](const auto& stall) { return has_submitted(ranks, stall.first); })) {
      continue;
    }
    std::vector<std::string> waits_for;
    for (const PendingKey& pending : ranks.pending) {
      if (pending.blocking) waits_for.push_back(first_line(pending.text));
    }
    missing.count += ranks.ranks.count();
    for (const RankAct& act : ranks.acts) missing.first.push_back({act.rank, act.act, waits_for});
  }
  std::ranges::sort(missing.first, {}, &MissingRank::rank);
  const std::string left_out = ranks_left_out();
  return stall_table(tensors, missing, report_.mute) +
         (report_.mute.empty() || left_out.empty() ? left_out : "\n " + left_out);
}

/// Returns the description of a proposal for which some ranks wait.
std::string StallInspector::text_of(const ProposalKey& key) const {
  for (const AlikeRanks& ranks : report_.alike) {
    if (waits(ranks, key)) return first_line(find_pending(ranks, key)->text);
  }
  return {};
}

/// Returns "rank 0 waits for 'a', which rank 1 has not submitted; ...".
std::string StallInspector::describe_stalls(const std::vector<ProposalKey>& keys) const {
  std::string text;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i > 0) text += "; ";
    if (i == kMostGroupsQuoted) return text + "..." + ranks_unheard();
    const RankSet waiting = ranks_waiting(keys[i]);
    const RankSet missing = ranks_without(keys[i]);
    text += fmt::format("{} {} for {}, which {} {} not submitted", ranks_text(waiting),
                        waiting.count() == 1 ? "waits" : "wait", text_of(keys[i]),
                        ranks_text(missing), missing.count() == 1 ? "has" : "have");
  }
  return text + ranks_unheard();
}

/// Returns the end of a text about a report that does not cover all ranks.
std::string StallInspector::ranks_left_out() const {
  const std::size_t known = report_.ranks() + report_.mute.size();
  if (known >= world_size_) return {};
  return report_.mute.empty() ? fmt::format(" (and {} more in other states)", world_size_ - known)
                              : fmt::format(" (nothing is known of {} more)", world_size_ - known);
}

/// Returns the same for texts in one line, including mute ranks.
std::string StallInspector::ranks_unheard() const {
  RankSet ranks;
  for (const MuteRank& mute : report_.mute) ranks.add(mute.rank);
  if (ranks.is_empty()) return ranks_left_out();
  return fmt::format("; {} {} not answer{}", ranks_text(ranks), ranks.count() == 1 ? "does" : "do",
                     ranks_left_out());
}

std::optional<StallInspector::Finding> StallInspector::follow_stalls(TimePoint now) {
  const std::map<ProposalKey, Stall> before = std::exchange(stalls_, {});
  std::vector<ProposalKey> crossed, forgotten, late;
  bool is_news = false;
  for (const ProposalKey& key : blocked_) {
    const bool is_missing = !ranks_without(key).is_empty();
    if (!is_missing && report_.mute.empty()) continue;
    const auto known = before.find(key);
    Stall stall = known == before.end() ? Stall{.since = asked_at_} : known->second;
    if (is_missing && asked_at_ - stall.since >= limits_.stall_after) late.push_back(key);
    if (!is_missing) {
      stall.crossed_since.reset();
    } else if (!is_crossed(key)) {
      stall.crossed_since.reset();
      const bool is_long = (now - stall.since) / kPeriodsBeforeNote >= limits_.confirm_after;
      if (!stall.is_noted && is_long) {
        stall.is_noted = true;
        forgotten.push_back(key);
      }
    } else {
      crossed.push_back(key);
      if (!stall.crossed_since) stall.crossed_since = now;
      const bool is_lasting = now - *stall.crossed_since >= limits_.confirm_after;
      if (!stall.is_warned && is_lasting) is_news = stall.is_warned = true;
      if (!stall.is_warned) confirm_at_ = later(*stall.crossed_since, limits_.confirm_after);
    }
    stalls_.emplace(key, stall);
  }
  if (!late.empty()) {
    for (const ProposalKey& key : late) stalls_.erase(key);
    const double seconds = std::chrono::duration<double>(limits_.stall_after).count();
    const auto text = [this](const ProposalKey& key) { return text_of(key); };
    return Finding{late, Error{.code = ErrorCode::kStall,
                               .verb = "agree",
                               .bucket = common_tensor(late, text),
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
