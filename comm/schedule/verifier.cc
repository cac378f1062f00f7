#include "comm/schedule/verifier.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace kolo {
namespace {

/// What an element consists of: how often each rank's contribution is in it, and how often it was
/// scaled. An empty count list means never written.
struct Value {
  std::vector<std::uint16_t> counts;
  std::uint32_t finishes = 0;

  bool written() const { return !counts.empty(); }
  friend bool operator==(const Value&, const Value&) = default;
};

std::string describe(const Value& value) {
  if (!value.written()) return "nothing";
  std::string text;
  for (std::size_t rank = 0; rank < value.counts.size(); ++rank) {
    if (value.counts[rank] != 0) text += fmt::format(" {}x rank {}", value.counts[rank], rank);
  }
  return text.empty() ? "no contribution" : text.substr(1);
}

/// A value for every element of one region, as runs of equal elements.
class Contents {
 public:
  struct Run {
    std::size_t count;
    Value value;
  };

  explicit Contents(Value initial = {}) { runs_.emplace(0, std::move(initial)); }

  std::vector<Run> read(std::size_t offset, std::size_t count) const {
    std::vector<Run> result;
    auto it = std::prev(runs_.upper_bound(offset));
    for (std::size_t at = offset, end = offset + count; at < end; ++it) {
      const auto next = std::next(it);
      const std::size_t stop = next == runs_.end() ? end : std::min(end, next->first);
      result.push_back({stop - at, it->second});
      at = stop;
    }
    return result;
  }

  void write(std::size_t offset, const std::vector<Run>& values) {
    for (const Run& run : values) {
      split(offset);
      split(offset + run.count);
      runs_.erase(runs_.find(offset), runs_.find(offset + run.count));
      runs_.emplace(offset, run.value);
      offset += run.count;
    }
  }

 private:
  void split(std::size_t at) {
    const auto it = std::prev(runs_.upper_bound(at));
    if (it->first != at) runs_.emplace_hint(std::next(it), at, it->second);
  }

  std::map<std::size_t, Value> runs_;  // first element -> value up to the next key
};

std::string name(StepKind kind) {
  static constexpr const char* kNames[] = {"send",   "recv", "signal", "await",
                                           "reduce", "copy", "pack",   "unpack"};
  return kNames[static_cast<int>(kind)];
}

/// One pass over all schedules; each check returns the first complaint.
class Verification {
 public:
  Verification(std::span<const Schedule> schedules, const ProcessGrid& grid, const Goal& goal)
      : schedules_(schedules), grid_(grid), goal_(goal) {
    first_.push_back(0);
    for (const Schedule& schedule : schedules_)
      first_.push_back(first_.back() + schedule.steps.size());
    before_.resize(first_.back());
  }

  std::optional<std::string> run() {
    if (auto wrong = check_shape()) return wrong;
    if (auto wrong = pair_up()) return wrong;
    if (auto wrong = order_steps()) return wrong;
    if (auto wrong = check_races()) return wrong;
    if (auto wrong = play()) return wrong;
    return check_result();
  }

 private:
  using Node = std::size_t;  // a step of some rank, numbered over all ranks

  const Step& step(Node node) const {
    const std::size_t rank = rank_of(node);
    return schedules_[rank].steps[node - first_[rank]];
  }
  std::size_t rank_of(Node node) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), node) -
                                    first_.begin() - 1);
  }
  std::string at(Node node) const {
    const std::size_t rank = rank_of(node);
    return fmt::format("rank {} step {} ({})", rank, node - first_[rank], name(step(node).kind));
  }

  std::optional<std::string> check_shape() const {
    if (static_cast<int>(schedules_.size()) != grid_.world_size())
      return "not one schedule per rank";
    for (int rank = 0; rank < grid_.world_size(); ++rank) {
      const int leader = grid_.leader(grid_.node(rank));
      if (schedules_[static_cast<std::size_t>(rank)].flag_count !=
          schedules_[static_cast<std::size_t>(leader)].flag_count) {
        return fmt::format("ranks {} and {} of one node count flags differently", leader, rank);
      }
    }
    for (Node node = 0; node < first_.back(); ++node) {
      const Step& line = step(node);
      const int rank = static_cast<int>(rank_of(node));
      const Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
      for (StepId id : line.after) {
        if (id >= schedule.steps.size()) return at(node) + " comes after a step that is not there";
      }
      const bool flag = line.kind == StepKind::kSignal || line.kind == StepKind::kAwait;
      const bool message = line.kind == StepKind::kSend || line.kind == StepKind::kRecv;
      if (flag || message) {
        if (line.peer < 0 || line.peer >= grid_.world_size() || line.peer == rank) {
          return at(node) + fmt::format(" has no peer {}", line.peer);
        }
      }
      if (flag && !grid_.same_node(rank, line.peer)) return at(node) + " uses a flag across nodes";
      if (flag && line.ordinal >= schedule.flag_count)
        return at(node) + " uses a flag beyond flag_count";
      for (const auto& [range, access] : accesses(line)) {
        const bool own_only =
            message || access == Access::kWrite || range.region != Region::kBucket;
        if (range.rank != rank && (own_only || !grid_.same_node(rank, range.rank))) {
          return at(node) + " touches memory that is not its own";
        }
        const std::size_t limit =
            range.region == Region::kScratch ? schedule.scratch_count : schedule.layout.count;
        if (range.end() > limit) return at(node) + " touches memory beyond the end";
        for (const Range& source : line.sources) {
          if (access == Access::kWrite && source.count != range.count) {
            return at(node) + " combines ranges of different length";
          }
        }
      }
    }
    return std::nullopt;
  }

  static std::vector<std::pair<Range, Access>> accesses(const Step& line) {
    std::vector<std::pair<Range, Access>> result;
    for (const Range& source : line.sources) result.emplace_back(source, Access::kRead);
    if (line.target.count > 0) result.emplace_back(line.target, Access::kWrite);
    return result;
  }

  // Messages and flags become edges between ranks.
  std::optional<std::string> pair_up() {
    using Key =
        std::tuple<bool, std::size_t, std::size_t, std::uint32_t>;  // message?, from, to, ordinal
    std::map<Key, Node> starts, ends;
    for (Node node = 0; node < first_.back(); ++node) {
      const Step& line = step(node);
      const std::size_t rank = rank_of(node);
      for (StepId id : line.after) before_[node].push_back(first_[rank] + id);
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
      if (std::get<0>(key) && step(start->second).sources[0].count != step(node).target.count) {
        return at(node) + " and " + at(start->second) + " differ in length";
      }
      before_[node].push_back(start->second);
    }
    for (const auto& [key, node] : starts) {
      if (!ends.contains(key)) {
        return at(node) + fmt::format(" is never taken by rank {}", std::get<2>(key));
      }
    }
    return std::nullopt;
  }

  // Kahn's algorithm; what is left over waits for itself.
  std::optional<std::string> order_steps() {
    std::vector<std::vector<Node>> after(before_.size());
    std::vector<std::size_t> missing(before_.size());
    for (Node node = 0; node < before_.size(); ++node) {
      missing[node] = before_[node].size();
      for (Node earlier : before_[node]) after[earlier].push_back(node);
      if (missing[node] == 0) order_.push_back(node);
    }
    for (std::size_t next = 0; next < order_.size(); ++next) {
      for (Node later : after[order_[next]]) {
        if (--missing[later] == 0) order_.push_back(later);
      }
    }
    if (order_.size() == before_.size()) return std::nullopt;
    for (Node node = 0; node < before_.size(); ++node) {
      if (missing[node] > 0) return at(node) + " waits in a circle";
    }
    return std::nullopt;
  }

  std::optional<std::string> check_races() const {
    // ancestors[n] has a bit for every step that is complete before n starts.
    const std::size_t words = (before_.size() + 63) / 64;
    std::vector<std::uint64_t> ancestors(before_.size() * words);
    for (Node node : order_) {
      std::uint64_t* mine = &ancestors[node * words];
      for (Node earlier : before_[node]) {
        const std::uint64_t* theirs = &ancestors[earlier * words];
        for (std::size_t word = 0; word < words; ++word) mine[word] |= theirs[word];
        mine[earlier / 64] |= std::uint64_t{1} << (earlier % 64);
      }
    }
    const auto precedes = [&](Node a, Node b) {
      return (ancestors[b * words + a / 64] >> (a % 64) & 1) != 0;
    };

    struct Use {
      Range range;
      Access access;
      Node node;
    };
    std::map<std::pair<int, Region>, std::vector<Use>> uses;
    for (Node node = 0; node < before_.size(); ++node) {
      for (const auto& [range, access] : accesses(step(node))) {
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
          if (!precedes(a->node, b->node) && !precedes(b->node, a->node)) {
            return at(a->node) + " and " + at(b->node) +
                   fmt::format(" touch element {} of rank {} in no fixed order", b->range.offset,
                               where.first);
          }
        }
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> play() {
    const std::size_t world = schedules_.size();
    for (std::size_t rank = 0; rank < world; ++rank) {
      Value own{.counts = std::vector<std::uint16_t>(world)};
      own.counts[rank] = 1;
      contents_[{static_cast<int>(rank), input_region()}] = Contents(std::move(own));
    }
    std::map<std::tuple<std::size_t, int, std::uint32_t>, std::vector<Contents::Run>> messages;
    for (Node node : order_) {
      const Step& line = step(node);
      std::vector<Contents::Run> result;
      switch (line.kind) {
        case StepKind::kSend:
          messages[{rank_of(node), line.peer, line.ordinal}] = read(line.sources[0]);
          break;
        case StepKind::kRecv:
          result = messages[{static_cast<std::size_t>(line.peer), static_cast<int>(rank_of(node)),
                             line.ordinal}];
          break;
        case StepKind::kCopy:
        case StepKind::kPack:
        case StepKind::kUnpack:
          result = read(line.sources[0]);
          break;
        case StepKind::kReduce:
          result = read(line.sources[0]);
          for (std::size_t i = 1; i < line.sources.size(); ++i) {
            result = combine(result, read(line.sources[i]));
          }
          for (Contents::Run& run : result) run.value.finishes += line.finishes ? 1U : 0U;
          break;
        case StepKind::kSignal:
        case StepKind::kAwait:
          break;
      }
      if (line.kind != StepKind::kSend) {
        for (const Contents::Run& run : result) {
          if (!run.value.written()) return at(node) + " uses an element that nobody wrote";
        }
      }
      if (line.target.count > 0)
        contents_[{line.target.rank, line.target.region}].write(line.target.offset, result);
    }
    return std::nullopt;
  }

  std::vector<Contents::Run> read(const Range& range) {
    return contents_[{range.rank, range.region}].read(range.offset, range.count);
  }

  static std::vector<Contents::Run> combine(const std::vector<Contents::Run>& a,
                                            const std::vector<Contents::Run>& b) {
    std::vector<Contents::Run> result;
    std::size_t used_a = 0, used_b = 0;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      const std::size_t count = std::min(a[i].count - used_a, b[j].count - used_b);
      Value sum = a[i].value;
      if (!b[j].value.written()) sum = {};
      for (std::size_t rank = 0; rank < sum.counts.size(); ++rank) {
        sum.counts[rank] = static_cast<std::uint16_t>(sum.counts[rank] + b[j].value.counts[rank]);
      }
      sum.finishes += b[j].value.finishes;
      result.push_back({count, std::move(sum)});
      if ((used_a += count) == a[i].count) ++i, used_a = 0;
      if ((used_b += count) == b[j].count) ++j, used_b = 0;
    }
    return result;
  }

  std::optional<std::string> check_result() {
    Value expected{.counts = std::vector<std::uint16_t>(schedules_.size())};
    for (int rank : goal_.contributors) expected.counts[static_cast<std::size_t>(rank)] = 1;
    expected.finishes = goal_.contributors.size() > 1 ? 1 : 0;
    for (int rank : goal_.receivers) {
      const std::size_t count = schedules_[static_cast<std::size_t>(rank)].layout.count;
      std::size_t offset = 0;
      for (const Contents::Run& run : read({rank, input_region(), 0, count})) {
        if (run.value != expected) {
          return fmt::format("rank {} ends with {} (scaled {} times) in element {}, not with {}",
                             rank, describe(run.value), run.value.finishes, offset,
                             describe(expected));
        }
        offset += run.count;
      }
    }
    return std::nullopt;
  }

  // Contributions start, and results end, in the caller's tensors.
  Region input_region() const {
    return schedules_[0].layout.placement == Placement::kStaged ? Region::kUser : Region::kBucket;
  }

  std::span<const Schedule> schedules_;
  const ProcessGrid& grid_;
  const Goal& goal_;
  std::vector<Node> first_;                // node number of each rank's first step
  std::vector<std::vector<Node>> before_;  // edges of happens-before, by later step
  std::vector<Node> order_;                // a topological order
  std::map<std::pair<int, Region>, Contents> contents_;
};

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Goal Goal::all_reduce(int world_size) { return {all_ranks(world_size), all_ranks(world_size)}; }

Goal Goal::broadcast(int root, int world_size) { return {{root}, all_ranks(world_size)}; }

std::optional<std::string> verify(std::span<const Schedule> schedules, const ProcessGrid& grid,
                                  const Goal& goal) {
  return Verification(schedules, grid, goal).run();
}

}  // namespace kolo
