// Part of Coordinator: complaints, inquiries, reports and pings when there is no progress.

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/base/contains.h"
#include "comm/base/log.h"
#include "comm/coordinator/coordinator.h"

namespace kolo {
namespace {

/// Interval between checks. A frozen peer is detected within 1.25 `peer_timeout`, even if it
/// freezes directly after it has answered a complaint.
Duration check_interval(const CoordinatorOptions& options) {
  return std::min(complaint_interval(options) / 4, options.peer_timeout / 16);
}

/// Time after which a rank that owes an answer counts as mute, so that inquiries do not wait for
/// its report. The watchdog of a stuck rank uses the same limit.
Duration mute_after(const CoordinatorOptions& options) {
  return std::min(options.warn_after, options.peer_timeout / 2);
}

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// `verb` is the phase in which the rank reports to be stuck, or empty.
std::string tell_silence(int rank, Duration silence, const std::string& verb) {
  std::string text = fmt::format("rank {} has been silent for {:.3g} s", rank, in_seconds(silence));
  if (!verb.empty())
    text += fmt::format(": it is stuck in '{}', in a call that has not returned", verb);
  return text;
}

}  // namespace

/// Each complaint makes the root ask all ranks. The interval is constant, so that a rank that
/// freezes late is detected as fast as any other. It is short compared to the stall limit, which is
/// counted from the first complaint.
Duration complaint_interval(const CoordinatorOptions& options) {
  return std::min({options.mismatch_after, options.peer_timeout / 8, options.stall_after / 8});
}

void Coordinator::inquire(const Frame& query) {
  // The query covers all pending proposals, so this rank need not complain now.
  next_complaint_ = later(clock_.now(), complaint_interval(options_));
  last_.look(clock_.now());
  inquiry_.begin(query.least, report(query));
  give_up_mute_children();
  if (!inquiry_.silent_children().empty()) encode(query, outgoing_);
  for (const int child : inquiry_.silent_children()) {
    transport_.send_control(child, outgoing_);
    watch_.expect(child);
  }
  answer();
}

/// Gives up the reports of mute children. They still owe an answer, and may be lost later.
void Coordinator::give_up_mute_children() {
  for (const int child : std::set<int>(inquiry_.silent_children())) {
    const Duration silence = watch_.silence(child);
    if (silence < mute_after(options_)) continue;
    mute_.insert(child);
    inquiry_.give_up({.rank = child,
                      .silence = std::chrono::duration_cast<std::chrono::milliseconds>(silence),
                      .stuck_in = stuck_in(child)});
  }
}

/// Returns the phase in which a rank of this node reports to be stuck, or an empty text.
std::string Coordinator::stuck_in(int rank) const {
  return transport_.is_mapped(rank) ? transport_.stuck_in(rank) : std::string();
}

/// Passes a complete report of this rank's subtree to the parent, or to the inspector.
void Coordinator::answer() {
  auto report = inquiry_.take_complete();
  if (!report) return;
  if (tree_.root == transport_.rank()) {
    conclude(inspector_.report(std::move(*report), clock_.now()));
  } else {
    send(tree_.parent,
         {.kind = FrameKind::kReport, .least = inquiry_.number(), .report = std::move(*report)});
  }
}

void Coordinator::conclude(const std::optional<StallInspector::Finding>& finding) {
  if (const auto warning = inspector_.take_warning()) {
    warn(warning->text);
    if (warning->is_for_all_ranks) {
      send_to_children({.kind = FrameKind::kWarn, .error = {.what = warning->text}});
    }
  }
  if (!finding) return;
  Error error = in_group(finding->error);
  log::report(error);
  negotiator_.reject(finding->keys, error);
}

void Coordinator::warn(std::string_view text) const {
  log::warn(options_.group.empty() ? std::string(text)
                                   : fmt::format("group {}: {}", options_.group, text));
}

template <typename Self, typename Visit>
void Coordinator::for_each_pending(Self& self, Visit visit) {
  for (auto& [key, proposal] : self.proposals_) visit(proposal.pending);
  for (auto& pending : self.arrivals_) visit(pending);
  for (auto& pending : self.begun_) visit(pending);
}

std::string Coordinator::describe_wait() const {
  std::string text;
  const auto add = [&](std::string_view key) {
    text +=
        fmt::format("{}{}", text.empty() ? "agreement on " : ", ", key.substr(0, key.find('\n')));
  };
  for_each_pending(*this, [&](const Pending& pending) { add(pending.text); });
  return text.empty() ? "no agreement" : text;
}

/// Returns the report of this rank. A closed rank counts as waiting for all its pending proposals.
AggregatedReport Coordinator::report(const Frame& query) const {
  std::vector<PendingKey> keys;
  std::map<const Waitable*, int> waiters;
  for_each_pending(*this, [&](const Pending& pending) {
    const int count = waiters[pending.waited] = pending.waited->waiters();
    const bool is_in_full = pending.key == query.key;
    keys.push_back(
        {.key = pending.key,
         .blocking = count > 0 || pending.waited->is_watched() || announcements_.has_closed(),
         .text = std::string(is_in_full ? pending.text
                                        : pending.text.substr(0, pending.text.find('\n'))),
         .sequence = pending.sequence});
  });
  for (const ProposalKey& key : query.keys) {
    const auto bucket = bucket_of(key.hash);
    if (bucket >= ended_.size() || ended_[bucket] <= key.round) continue;
    keys.push_back({.key = key, .past = true});
  }
  int waiting = 0;
  for (const auto& [waited, count] : waiters) waiting += count;
  const int threads = user_threads_ == nullptr ? 0 : user_threads_->load(std::memory_order_acquire);
  return report_of({.rank = transport_.rank(), .act = last_.at(clock_.now())}, std::move(keys),
                   announcements_.has_closed() || (waiting > 0 && waiting >= threads));
}

bool Coordinator::is_check_due(bool runs) {
  if (failure_) return false;
  if (runs || waiting()) return clock_.now() >= next_check_;
  watch_.rest();
  return false;
}

/// Also pings ranks that owe a report, because such a rank may freeze after it has sent another
/// frame that counted as its answer.
void Coordinator::check_peers(std::span<const int> awaited) {
  const TimePoint now = clock_.now();
  next_check_ = later(now, check_interval(options_));
  last_.look(now);
  if (const auto lost = watch_.check(now)) {
    const bool is_awaited = contains(awaited, *lost);
    return fail({.code = ErrorCode::kPeerLost,
                 .rank = transport_.rank(),
                 .peer = *lost,
                 .verb = is_awaited ? "run" : "agree",
                 .what = tell_silence(*lost, options_.peer_timeout, stuck_in(*lost)) +
                         "; if it was only slow, raise peer_timeout"});
  }
  give_up_mute_children();
  answer();
  warn_of_silence();
  complain(now);
  inspector_.tick(now);
  std::set<int> watched(awaited.begin(), awaited.end());
  watched.insert(inquiry_.silent_children().begin(), inquiry_.silent_children().end());
  watched.insert(mute_.begin(), mute_.end());
  for (const int peer : watch_.take_overdue(std::move(watched))) {
    send(peer, {.kind = FrameKind::kPing});
  }
}

void Coordinator::warn_of_silence() {
  if (options_.warn_after == Duration::max()) return;
  for (const int peer : watch_.take_silent(mute_after(options_))) {
    warn(fmt::format("{}; after {:.3g} s it is taken for lost",
                     tell_silence(peer, watch_.silence(peer), stuck_in(peer)),
                     in_seconds(options_.peer_timeout)));
  }
}

/// Complains about the oldest pending proposal. The root then asks about all pending proposals.
void Coordinator::complain(TimePoint now) {
  const Pending* oldest = nullptr;
  for_each_pending(*this, [&](Pending& pending) {
    if (!pending.since) pending.since = now;
    if (oldest == nullptr || *pending.since < *oldest->since) oldest = &pending;
  });
  if (oldest == nullptr || now - *oldest->since < complaint_interval(options_)) return;
  if (now >= next_complaint_) pass_complaint(oldest->key);
}

/// Forwards a child's complaint, at most one per interval. It may be early by half an interval,
/// because clocks of ranks differ.
void Coordinator::take_complaint(const ProposalKey& key) {
  if (later(clock_.now(), complaint_interval(options_) / 2) >= next_complaint_) {
    pass_complaint(key);
  }
}

void Coordinator::pass_complaint(const ProposalKey& key) {
  next_complaint_ = later(clock_.now(), complaint_interval(options_));
  if (tree_.root == transport_.rank()) return inspector_.stalled(key);
  send(tree_.parent, {.kind = FrameKind::kStalled, .key = key});
  watch_.expect(tree_.parent);
  parent_owes_answer_ = true;
}

}  // namespace kolo
