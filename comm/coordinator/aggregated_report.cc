#include "comm/coordinator/aggregated_report.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace kolo {
namespace {

// --- Combining ----------------------------------------------------------------------------------

/// Omits the proposals from `bound` on. If threads wait for an omitted proposal, the ranks must not
/// be considered stuck.
void cut(AlikeRanks& alike, const ProposalKey& bound) {
  const auto first = std::ranges::lower_bound(alike.pending, bound, {}, &PendingKey::key);
  if (std::any_of(first, alike.pending.end(), [](const auto& entry) { return entry.blocking; })) {
    alike.all_wait = false;
  }
  alike.pending.erase(first, alike.pending.end());
}

void add_acts(std::vector<RankAct>& acts, std::vector<RankAct> others) {
  acts.insert(acts.end(), std::move_iterator(others.begin()), std::move_iterator(others.end()));
  std::ranges::sort(acts, {}, &RankAct::rank);
  if (acts.size() > AlikeRanks::kMostActs) acts.resize(AlikeRanks::kMostActs);
}

/// Merges entries with equal reports.
void unite(std::vector<AlikeRanks>& entries) {
  std::vector<AlikeRanks> united;
  for (AlikeRanks& entry : entries) {
    const auto same = std::ranges::find_if(united, [&](const AlikeRanks& other) {
      return other.all_wait == entry.all_wait && other.pending == entry.pending;
    });
    if (same == united.end()) {
      united.push_back(std::move(entry));
    } else {
      same->ranks.add(entry.ranks);
      add_acts(same->acts, std::move(entry.acts));
    }
  }
  entries = std::move(united);
}

/// Returns the first proposal after the first `most` proposals, if there are more.
std::optional<ProposalKey> key_beyond(const std::vector<AlikeRanks>& entries, std::size_t most) {
  std::set<ProposalKey> keys;
  for (const AlikeRanks& entry : entries) {
    for (const PendingKey& pending : entry.pending) keys.insert(pending.key);
  }
  if (keys.size() <= most) return std::nullopt;
  return *std::next(keys.begin(), static_cast<std::ptrdiff_t>(most));
}

/// Drops entries beyond kMostKinds. Half of the kept entries have the fewest pending proposals
/// (stragglers), the others the most ranks.
void leave_out_kinds(std::vector<AlikeRanks>& entries) {
  if (entries.size() <= AggregatedReport::kMostKinds) return;
  const auto half = static_cast<std::ptrdiff_t>(AggregatedReport::kMostKinds / 2);
  std::ranges::stable_sort(entries, {}, [](const auto& entry) { return entry.pending.size(); });
  std::stable_sort(entries.begin() + half, entries.end(),
                   [](const auto& a, const auto& b) { return a.ranks.count() > b.ranks.count(); });
  entries.resize(AggregatedReport::kMostKinds);
}

void keep_first_mute(std::vector<MuteRank>& mute) {
  std::ranges::sort(mute, {}, &MuteRank::rank);
  if (mute.size() > AggregatedReport::kMostMute) mute.resize(AggregatedReport::kMostMute);
}

void sort_by_rank(std::vector<AlikeRanks>& entries) {
  std::ranges::sort(entries, {}, [](const AlikeRanks& entry) { return entry.ranks.first(); });
}

// --- Bytes --------------------------------------------------------------------------------------

constexpr std::size_t kRangeBytes = 8;
constexpr std::size_t kLeastActBytes = 16;
constexpr std::size_t kLeastMuteBytes = 16;
constexpr std::size_t kLeastEntryBytes = 28;  // of a proposal in the table
constexpr std::size_t kLeastKindBytes = 21;

/// The state of a proposal on the ranks of one entry.
enum class Having : std::uint8_t { kNot, kPending, kBlocking, kPast };
constexpr Having kAllHavings[] = {Having::kNot, Having::kPending, Having::kBlocking, Having::kPast};

Having having_of(const PendingKey& entry) {
  if (entry.past) return Having::kPast;
  return entry.blocking ? Having::kBlocking : Having::kPending;
}

using TableKey = std::tuple<ProposalKey, std::uint64_t, std::string_view>;

TableKey key_of(const PendingKey& entry) { return {entry.key, entry.sequence, entry.text}; }

void write(ByteWriter& writer, const RankSet& ranks) {
  writer.number(static_cast<std::uint32_t>(ranks.count()));
  writer.number(static_cast<std::uint32_t>(ranks.ranges().size()));
  for (const RankSet::Range& range : ranks.ranges()) {
    writer.rank(range.first);
    writer.rank(range.last);
  }
}

RankSet read_ranks(ByteReader& reader) {
  const std::size_t count = reader.number<std::uint32_t>();
  std::vector<RankSet::Range> ranges(reader.list(kRangeBytes));
  for (RankSet::Range& range : ranges) {
    range.first = reader.rank();
    range.last = reader.rank();
  }
  return {std::move(ranges), count};
}

void write(ByteWriter& writer, const std::vector<RankAct>& acts) {
  writer.number(static_cast<std::uint32_t>(acts.size()));
  for (const RankAct& act : acts) {
    writer.rank(act.rank);
    writer.text(act.act.text);
    writer.number(static_cast<std::uint64_t>(act.act.age.count()));
  }
}

std::vector<RankAct> read_acts(ByteReader& reader) {
  std::vector<RankAct> acts(reader.list(kLeastActBytes));
  for (RankAct& act : acts) {
    act.rank = reader.rank();
    act.act.text = reader.text();
    act.act.age = std::chrono::milliseconds(reader.number<std::uint64_t>());
  }
  return acts;
}

void write(ByteWriter& writer, const std::vector<MuteRank>& mute) {
  writer.number(static_cast<std::uint32_t>(mute.size()));
  for (const MuteRank& rank : mute) {
    writer.rank(rank.rank);
    writer.text(rank.stuck_in);
    writer.number(static_cast<std::uint64_t>(rank.silence.count()));
  }
}

std::vector<MuteRank> read_mute(ByteReader& reader) {
  std::vector<MuteRank> mute(reader.list(kLeastMuteBytes));
  for (MuteRank& rank : mute) {
    rank.rank = reader.rank();
    rank.stuck_in = reader.text();
    rank.silence = std::chrono::milliseconds(reader.number<std::uint64_t>());
  }
  return mute;
}

}  // namespace

std::size_t AggregatedReport::ranks() const {
  std::size_t count = 0;
  for (const AlikeRanks& entry : alike) count += entry.ranks.count();
  return count;
}

AggregatedReport report_of(RankAct act, std::vector<PendingKey> pending, bool all_wait) {
  std::ranges::sort(pending, {}, key_of);
  const RankSet ranks(act.rank);
  std::vector<AggregatedReport> reports(1);
  reports[0].alike.push_back({.ranks = ranks,
                              .pending = std::move(pending),
                              .all_wait = all_wait,
                              .acts = {std::move(act)}});
  return combine(std::move(reports));
}

AggregatedReport combine(std::vector<AggregatedReport> reports) {
  AggregatedReport all;
  for (AggregatedReport& report : reports) {
    if (report.unknown_from && (!all.unknown_from || *report.unknown_from < *all.unknown_from)) {
      all.unknown_from = report.unknown_from;
    }
    all.alike.insert(all.alike.end(), std::move_iterator(report.alike.begin()),
                     std::move_iterator(report.alike.end()));
    all.mute.insert(all.mute.end(), report.mute.begin(), report.mute.end());
  }
  keep_first_mute(all.mute);
  if (all.unknown_from) {
    for (AlikeRanks& entry : all.alike) cut(entry, *all.unknown_from);
  }
  unite(all.alike);
  sort_by_rank(all.alike);
  leave_out_kinds(all.alike);
  if (const auto bound = key_beyond(all.alike, AggregatedReport::kMostProposals)) {
    all.unknown_from = bound;
    for (AlikeRanks& entry : all.alike) cut(entry, *bound);
    unite(all.alike);
  }
  sort_by_rank(all.alike);
  return all;
}

void write(ByteWriter& writer, const AggregatedReport& report) {
  std::map<TableKey, std::size_t> table;
  for (const AlikeRanks& alike : report.alike) {
    for (const PendingKey& entry : alike.pending) table.emplace(key_of(entry), 0);
  }
  writer.number(static_cast<std::uint32_t>(table.size()));
  std::size_t place = 0;
  for (auto& [key, number] : table) {
    number = place++;
    write(writer, std::get<ProposalKey>(key));
    writer.number(std::get<std::uint64_t>(key));
    writer.text(std::string(std::get<std::string_view>(key)));
  }
  writer.number(static_cast<std::uint8_t>(report.unknown_from ? 1 : 0));
  write(writer, report.unknown_from.value_or(ProposalKey{}));
  write(writer, report.mute);
  writer.number(static_cast<std::uint32_t>(report.alike.size()));
  std::vector<Having> havings;
  for (const AlikeRanks& alike : report.alike) {
    write(writer, alike.ranks);
    writer.number(static_cast<std::uint8_t>(alike.all_wait ? 1 : 0));
    write(writer, alike.acts);
    havings.assign(table.size(), Having::kNot);
    for (const PendingKey& entry : alike.pending) {
      havings[table.at(key_of(entry))] = having_of(entry);
    }
    for (const Having having : havings) writer.number(static_cast<std::uint8_t>(having));
  }
}

std::optional<AggregatedReport> read_aggregated_report(ByteReader& reader) {
  std::vector<PendingKey> table(reader.list(kLeastEntryBytes));
  for (PendingKey& entry : table) {
    entry.key = read_proposal_key(reader);
    entry.sequence = reader.number<std::uint64_t>();
    entry.text = reader.text();
  }
  const bool is_table = std::ranges::adjacent_find(table, [](const auto& entry, const auto& next) {
                          return !(key_of(entry) < key_of(next));
                        }) == table.end();
  AggregatedReport report;
  const bool is_cut = reader.number<std::uint8_t>() != 0;
  const ProposalKey bound = read_proposal_key(reader);
  if (is_cut) report.unknown_from = bound;
  report.mute = read_mute(reader);
  const std::size_t kinds = reader.list(kLeastKindBytes + table.size());
  if (!is_table || kinds > AggregatedReport::kMostKinds ||
      report.mute.size() > AggregatedReport::kMostMute) {
    return std::nullopt;
  }
  report.alike.resize(kinds);
  std::vector<Having> havings(table.size());
  std::vector<bool> is_used(table.size());
  for (AlikeRanks& alike : report.alike) {
    alike.ranks = read_ranks(reader);
    alike.all_wait = reader.number<std::uint8_t>() != 0;
    alike.acts = read_acts(reader);
    for (Having& having : havings) having = reader.choice(kAllHavings);
    if (!reader.ok() || !alike.ranks.is_valid()) return std::nullopt;
    const auto none = std::ranges::count(havings, Having::kNot);
    alike.pending.reserve(havings.size() - static_cast<std::size_t>(none));
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (havings[i] == Having::kNot) continue;
      is_used[i] = true;
      PendingKey& entry = alike.pending.emplace_back(table[i]);
      entry.blocking = havings[i] == Having::kBlocking;
      entry.past = havings[i] == Having::kPast;
    }
  }
  if (!reader.ok() || std::ranges::find(is_used, false) != is_used.end()) return std::nullopt;
  return report;
}

void Inquiry::begin(std::uint64_t number, AggregatedReport own) {
  number_ = number;
  reports_.clear();
  reports_.push_back(std::move(own));
  silent_ = {tree_.children.begin(), tree_.children.end()};
}

void Inquiry::report(int child, std::uint64_t number, AggregatedReport report) {
  if (!is_open() || number != number_ || silent_.erase(child) == 0) return;
  reports_.push_back(std::move(report));
}

void Inquiry::give_up(MuteRank child) {
  if (silent_.erase(child.rank) == 0) return;
  reports_.push_back({.mute = {std::move(child)}});
}

std::optional<AggregatedReport> Inquiry::take_complete() {
  if (!is_open() || !silent_.empty()) return std::nullopt;
  return combine(std::exchange(reports_, {}));
}

}  // namespace kolo
