#include "comm/verify/verifier.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comm/schedule/exposed_buffer.h"
#include "comm/verify/happens_before.h"
#include "comm/verify/step_rules.h"
#include "comm/verify/symbolic_execution.h"

namespace kolo {
namespace {

/// Checks all schedules once; each check returns the first error.
class Verification {
 public:
  Verification(std::span<const Schedule> schedules, const ProcessGrid& grid,
               const CollectiveSpec& spec, const VerifyOptions& options)
      : schedules_(schedules),
        grid_(grid),
        spec_(spec),
        options_(options),
        steps_(schedules),
        timing_(steps_.size()) {}

  std::optional<std::string> run() {
    if (auto wrong = check_shape()) return wrong;
    if (auto wrong = pair_up()) return wrong;
    if (auto wrong = gather_meetings()) return wrong;
    if (auto wrong = check_circles()) return wrong;
    timing_.close();
    if (auto wrong = check_launch_order()) return wrong;
    if (auto wrong = check_first_ranks()) return wrong;
    if (auto wrong = check_races()) return wrong;
    if (auto wrong = check_inputs()) return wrong;
    if (auto wrong = check_visits()) return wrong;
    if (auto wrong = check_copies()) return wrong;
    return play_symbolically(steps_, timing_.order(), meetings_, spec_);
  }

 private:
  /// A step, numbered over all ranks; higher numbers are meetings of native steps.
  using Node = AllSteps::Node;

  const Step& step(Node node) const { return steps_[node]; }
  std::size_t rank_of(Node node) const { return steps_.rank_of(node); }
  std::string at(Node node) const { return steps_.text(node); }
  std::vector<std::pair<Range, Access>> accesses_of(Node node) const {
    return accesses(step(node), schedules_[rank_of(node)].layout);
  }

  std::optional<std::string> check_shape() const {
    if (static_cast<int>(schedules_.size()) != grid_.world_size())
      return "not one schedule per rank";
    if (spec_.count() != CollectiveSpec::kWhole && spec_.count() != schedules_.front().layout.count)
      return "the spec is of another length";
    for (int rank = 0; rank < grid_.world_size(); ++rank) {
      if (schedules_[static_cast<std::size_t>(rank)].rank != rank)
        return fmt::format("schedule {} is not rank {}'s", rank, rank);
      const int leader = grid_.leader(grid_.node(rank));
      const Schedule& mine = schedules_[static_cast<std::size_t>(rank)];
      const Schedule& theirs = schedules_[static_cast<std::size_t>(leader)];
      if (mine.flag_count != theirs.flag_count) {
        return fmt::format("ranks {} and {} of one node count flags differently", leader, rank);
      }
      const bool shares_arena = mine.layout.memory == MemoryKind::kHost;
      if (mine.staging_turns == 0 || (!shares_arena && mine.staging_turns > 1)) {
        return fmt::format("rank {} has {} turns of staging memory", rank, mine.staging_turns);
      }
      if (shares_arena &&
          std::tie(mine.has_bucket, mine.staging_count, mine.staging_turns) !=
              std::tie(theirs.has_bucket, theirs.staging_count, theirs.staging_turns)) {
        return fmt::format("ranks {} and {} of one node lay out their arenas differently", leader,
                           rank);
      }
    }
    for (Node node = 0; node < steps_.size(); ++node) {
      if (auto wrong = check_step(step(node), schedules_[rank_of(node)], grid_, options_)) {
        return at(node) + " " + *wrong;
      }
    }
    return std::nullopt;
  }

  // Matches sends with receives and signals with awaits. Adds edges for flags; `check_circles` adds
  // edges for messages.
  std::optional<std::string> pair_up() {
    using Key =
        std::tuple<bool, std::size_t, std::size_t, std::uint32_t>;  // is message, from, to, ordinal
    std::map<Key, Node> starts, ends;
    for (Node node = 0; node < steps_.size(); ++node) {
      const Step& line = step(node);
      const std::size_t rank = rank_of(node);
      for (StepId id : line.after) timing_.add_edge(steps_.first(rank) + id, node);
      const auto peer = static_cast<std::size_t>(line.peer);
      const bool message = line.kind == StepKind::kSend || line.kind == StepKind::kRecv;
      if (line.kind == StepKind::kSend || line.kind == StepKind::kSignal) {
        if (!starts.emplace(Key{message, rank, peer, line.ordinal}, node).second) {
          return at(node) + fmt::format(" repeats number {} to rank {}", line.ordinal, peer);
        }
      } else if (line.kind == StepKind::kRecv || line.kind == StepKind::kAwait) {
        if (!ends.emplace(Key{message, peer, rank, line.ordinal}, node).second) {
          return at(node) + fmt::format(" repeats number {} from rank {}", line.ordinal, peer);
        }
      }
    }
    for (const auto& [key, node] : ends) {
      const auto start = starts.find(key);
      if (start == starts.end()) {
        return at(node) + fmt::format(" waits for number {} that rank {} never gives",
                                      std::get<3>(key), std::get<1>(key));
      }
      if (std::get<0>(key)) {
        if (step(start->second).sources[0].count != step(node).target.count) {
          return at(node) + " and " + at(start->second) + " differ in length";
        }
        if (auto wrong = check_capacities(start->second, node)) return wrong;
        messages_.push_back({.send = start->second, .recv = node});
      } else {
        if (step(node).lag == 0) {
          timing_.add_edge(start->second, node);
        } else {
          late_awaits_.push_back({.rank = rank_of(node), .signal = start->second});
        }
      }
    }
    for (const auto& [key, node] : starts) {
      if (!ends.contains(key)) {
        return at(node) + fmt::format(" is never taken by rank {}", std::get<2>(key));
      }
    }
    return std::nullopt;
  }

  // A payload is sent without conversion, so source and destination must have equal capacities.
  std::optional<std::string> check_capacities(Node send, Node recv) const {
    const Range& source = step(send).sources[0];
    const Range& target = step(recv).target;
    const std::size_t sent = message_bytes(schedules_[rank_of(send)], source);
    const std::size_t received = message_bytes(schedules_[rank_of(recv)], target);
    const bool is_coded = source.region == Region::kPayload;
    if (is_coded == (target.region == Region::kPayload) && sent == received) return std::nullopt;
    return at(recv) + " and " + at(send) + " are not planned alike";
  }

  // Finds the native steps that belong together: none completes before all can start. Their meeting
  // is a node between all predecessors of these steps and the steps themselves.
  std::optional<std::string> gather_meetings() {
    using Key = std::tuple<NativeGroup, int, std::uint32_t>;  // group, node of the group, ordinal
    std::map<Key, std::vector<Node>> meetings;
    for (Node node = 0; node < steps_.size(); ++node) {
      const Step& line = step(node);
      if (line.kind != StepKind::kNative) continue;
      const int rank = static_cast<int>(rank_of(node));
      const int place = line.group == NativeGroup::kNode ? grid_.node(rank) : 0;
      meetings[{line.group, place, line.ordinal}].push_back(node);
    }
    for (const auto& [key, steps] : meetings) {
      const Node first = steps.front();
      const std::vector<int> members =
          meeting_members(step(first), static_cast<int>(rank_of(first)), grid_);
      if (!std::equal(
              steps.begin(), steps.end(), members.begin(), members.end(),
              [&](Node node, int rank) { return static_cast<int>(rank_of(node)) == rank; })) {
        return at(first) + " is not met once by each rank of its group";
      }
      for (Node node : steps) ready_[node] = timing_.before(node);
      const Node meeting = timing_.add_node();
      for (Node node : steps) {
        if (!is_same_work(steps, node)) {
          return at(first) + " and " + at(node) + " do different things";
        }
        for (Node earlier : timing_.before(node)) timing_.add_edge(earlier, meeting);
      }
      for (Node node : steps) timing_.add_edge(meeting, node);
      meetings_[meeting] = steps;
    }
    return std::nullopt;
  }

  /// Whether `node` does the same work as the first of `steps`, to which it belongs. In an
  /// exchange: whether all ranks send what their peers receive.
  bool is_same_work(const std::vector<Node>& steps, Node node) const {
    const Step& a = step(steps.front());
    const Step& b = step(node);
    if (a.finishes != b.finishes || a.native != b.native) return false;
    switch (a.native) {
      case NativeOp::kReduceParts:
        return std::ranges::equal(a.sources, b.sources, {}, &Range::count, &Range::count);
      case NativeOp::kGatherParts:
        return std::ranges::equal(a.mirrors, b.mirrors, {}, &Range::count, &Range::count);
      case NativeOp::kExchange: {
        const auto position =
            static_cast<std::size_t>(std::ranges::find(steps, node) - steps.begin());
        for (std::size_t i = 0; i < b.mirrors.size(); ++i) {
          const Step& other = step(steps[i % steps.size()]);
          const std::size_t tensor = i / steps.size();
          if (other.native != b.native || other.sources.size() != b.mirrors.size()) return false;
          const Range& sent = other.sources[tensor * steps.size() + position];
          if (sent.count != b.mirrors[i].count) return false;
        }
        return true;
      }
      default:
        return whole(a).count == whole(b).count;
    }
  }

  static const Range& whole(const Step& native) {
    return native.native == NativeOp::kAllGather ? native.target : native.sources[0];
  }

  // Searches for deadlocks. A network may delay a send until its receive is posted, but need not.
  // Therefore this order is used only in a search for cycles, and other steps must not rely on it.
  std::optional<std::string> check_circles() {
    HappensBefore slow = timing_;
    for (const Message& message : messages_) {
      for (Node earlier : timing_.before(message.recv)) slow.add_edge(earlier, message.send);
    }
    for (const Message& message : messages_) timing_.add_edge(message.send, message.recv);
    if (const auto waits = timing_.sort()) return circle(*waits, "");
    for (const Message& message : messages_) slow.add_edge(message.send, message.recv);
    if (const auto waits = slow.sort())
      return circle(*waits, " if sends last until they are received");
    return std::nullopt;
  }

  std::string circle(Node waits, const std::string& when) const {
    const Node shown = waits < steps_.size() ? waits : meetings_.at(waits).front();
    return at(shown) + " waits in a circle" + when;
  }

  // Checks that each rank launches native steps in the order of their ordinals, because a device
  // runs them in the order of launches.
  std::optional<std::string> check_launch_order() const {
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      std::map<std::uint32_t, Node> natives;
      for (Node node = steps_.first(rank); node < steps_.first(rank + 1); ++node) {
        if (step(node).kind != StepKind::kNative) continue;
        if (!natives.emplace(step(node).ordinal, node).second) {
          return at(node) + fmt::format(" repeats number {}", step(node).ordinal);
        }
      }
      if (natives.empty()) continue;
      for (auto next = std::next(natives.begin()); next != natives.end(); ++next) {
        const Node previous = std::prev(next)->second;
        if (!timing_.precedes(previous, next->second)) {
          return at(next->second) + " is not launched after " + at(previous);
        }
      }
    }
    return std::nullopt;
  }

  // The first rank of a group launches a native step when it is ready there, and other ranks launch
  // in the same order, between steps of other buckets. Therefore the first rank's step must depend
  // on everything that the other ranks' steps depend on.
  std::optional<std::string> check_first_ranks() const {
    const auto waits_for = [&](Node node, Node meeting) {
      return std::ranges::any_of(ready_.at(node),
                                 [&](Node earlier) { return timing_.precedes(meeting, earlier); });
    };
    for (const auto& [meeting, steps] : meetings_) {
      for (const auto& [other, met] : meetings_) {
        if (other == meeting || waits_for(steps.front(), other)) continue;
        for (Node node : steps) {
          if (!waits_for(node, other)) continue;
          return at(node) + " waits for " + at(met.front()) + ", but " + at(steps.front()) +
                 " is launched before";
        }
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> check_races() const {
    struct Use {
      Range range;
      Access access;
      Node node;
    };
    std::map<std::pair<int, Region>, std::vector<Use>> uses;
    for (Node node = 0; node < steps_.size(); ++node) {
      for (const auto& [range, access] : accesses_of(node)) {
        if (range.count == 0) continue;
        uses[{range.rank, range.region}].push_back({range, access, node});
      }
    }
    for (auto& [where, list] : uses) {
      std::sort(list.begin(), list.end(),
                [](const Use& a, const Use& b) { return a.range.offset < b.range.offset; });
      for (auto a = list.begin(); a != list.end(); ++a) {
        for (auto b = std::next(a); b != list.end() && b->range.offset < a->range.end(); ++b) {
          if (a->node == b->node) continue;
          if (a->access == Access::kRead && b->access == Access::kRead) continue;
          if (!timing_.precedes(a->node, b->node) && !timing_.precedes(b->node, a->node)) {
            return at(a->node) + " and " + at(b->node) +
                   fmt::format(" touch element {} of rank {} in no fixed order", b->range.offset,
                               where.first);
          }
        }
      }
    }
    return std::nullopt;
  }

  // Checks that all contributions are read before results replace them.
  std::optional<std::string> check_inputs() const {
    if (!schedules_.front().layout.replaces_inputs) return std::nullopt;
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      std::vector<Node> readers, writers;
      for (Node node = steps_.first(rank); node < steps_.first(rank + 1); ++node) {
        for (const auto& [range, access] : accesses_of(node)) {
          if (range.count > 0 && range.region == Region::kInput) readers.push_back(node);
          if (range.count > 0 && range.region == Region::kUser) writers.push_back(node);
        }
      }
      for (const Node reader : readers) {
        for (const Node writer : writers) {
          if (!timing_.precedes(reader, writer)) {
            return at(writer) + " may replace what " + at(reader) + " reads";
          }
        }
      }
    }
    return std::nullopt;
  }

  // Checks that peers access a rank's memory only from the start to the end of its iteration.
  std::optional<std::string> check_visits() const {
    for (Node node = 0; node < steps_.size(); ++node) {
      const std::size_t visitor = rank_of(node);
      for (const auto& [range, access] : accesses_of(node)) {
        const auto owner = static_cast<std::size_t>(range.rank);
        if (owner == visitor || range.count == 0) continue;
        if (!timing_.any_precedes(steps_.first(owner), steps_.first(owner + 1), node)) {
          return at(node) + fmt::format(" touches memory of rank {} before it begins", owner);
        }
        const bool takes_turns =
            range.region == Region::kStaging && schedules_[owner].staging_turns > 1;
        const Node begin = takes_turns ? steps_.first(visitor) : node;
        const Node end = takes_turns ? steps_.first(visitor + 1) : node + 1;
        if (!is_known_to(owner, begin, end) && !(takes_turns && is_told_later(owner, node))) {
          return at(node) + fmt::format(" touches memory of rank {} after it ends", owner);
        }
      }
    }
    return std::nullopt;
  }

  // Checks that peers only copy memory exposed for copies, because they may be unable to map it.
  std::optional<std::string> check_copies() const {
    std::map<std::tuple<Region, int, std::size_t>, std::vector<Range>> for_copies;
    const auto is_for_copies = [&](const Range& range) {
      const auto exposed_buffers = for_copies.find({range.region, range.rank, range.slot});
      return ExposedBuffer::is_exposed(range) && exposed_buffers != for_copies.end() &&
             std::ranges::any_of(exposed_buffers->second,
                                 [&](const Range& each) { return each.overlaps(range); });
    };
    for (Node node = 0; node < steps_.size(); ++node) {
      const Range& exposed_buffer = step(node).target;
      if (step(node).for_copies)
        for_copies[{exposed_buffer.region, exposed_buffer.rank, exposed_buffer.slot}].push_back(
            exposed_buffer);
    }
    for (Node node = 0; node < steps_.size(); ++node) {
      const Step& line = step(node);
      const bool is_copy = line.kind == StepKind::kUnpack || line.kind == StepKind::kPack ||
                           line.kind == StepKind::kExpose;
      if (is_copy) continue;
      std::vector<Range> ranges = line.sources;
      ranges.push_back(line.target);
      for (const Range& range : ranges) {
        const bool is_peers = static_cast<std::size_t>(range.rank) != rank_of(node);
        if (is_peers && is_for_copies(range)) {
          return at(node) + std::string(" works with what is exposed for copies");
        }
      }
    }
    return std::nullopt;
  }

  /// Whether `owner`, before it reuses a copy of staging memory in a later iteration, waits for a
  /// flag that the peer raises after `visit`.
  bool is_told_later(std::size_t owner, Node visit) const {
    return std::ranges::any_of(late_awaits_, [&](const LateAwait& await) {
      return await.rank == owner && rank_of(await.signal) == rank_of(visit) &&
             timing_.precedes(visit, await.signal);
    });
  }

  /// Whether some step of `rank` depends on one of the steps [begin, end).
  bool is_known_to(std::size_t rank, Node begin, Node end) const {
    for (Node later = steps_.first(rank + 1); later-- > steps_.first(rank);) {
      if (timing_.any_precedes(begin, end, later)) return true;
    }
    return false;
  }

  struct Message {
    Node send, recv;
  };
  /// An await of a `signal` of an earlier iteration, which orders no steps within one iteration.
  struct LateAwait {
    std::size_t rank;
    Node signal;
  };

  std::span<const Schedule> schedules_;
  const ProcessGrid& grid_;
  const CollectiveSpec& spec_;
  const VerifyOptions& options_;
  AllSteps steps_;
  HappensBefore timing_;
  std::vector<Message> messages_;
  std::vector<LateAwait> late_awaits_;
  Meetings meetings_;
  std::map<Node, std::vector<Node>> ready_;  // dependencies of native steps, without meetings
};

}  // namespace

std::optional<std::string> verify(std::span<const Schedule> schedules, const ProcessGrid& grid,
                                  const CollectiveSpec& spec, const VerifyOptions& options) {
  return Verification(schedules, grid, spec, options).run();
}

}  // namespace kolo
