#include <algorithm>
#include <map>
#include <tuple>

#include "comm/base/check.h"
#include "comm/verify/happens_before.h"
#include "runtime/tools/schedule_view.h"

namespace kolo {
namespace {

using Node = AllSteps::Node;

/// Computes the order on a graph whose nodes are the steps, numbered over all ranks.
class Ordering {
 public:
  Ordering(std::span<const Schedule> schedules, const ProcessGrid& grid)
      : steps_(schedules), grid_(grid), before_(steps_.size()), round_(steps_.size()) {
    for (const Schedule& schedule : schedules) {
      result_.round.emplace_back(schedule.steps.size());
      result_.source.emplace_back(schedule.steps.size());
    }
  }

  ScheduleOrder run() && {
    add_dependencies();
    add_messages_and_flags();
    add_meetings();
    ensure(!before_.sort(), "steps wait in a circle");
    for (const Node node : before_.order()) {
      // A node for the joint start of native steps takes no round.
      for (const Node earlier : before_.before(node)) {
        const std::size_t lasts = earlier < steps_.size() ? 1 : 0;
        round_[node] = std::max(round_[node], round_[earlier] + lasts);
      }
    }
    each_step([&](const Step&, StepPlace place, Node node) {
      result_.round[static_cast<std::size_t>(place.rank)][place.step] = round_[node];
      result_.rounds = std::max(result_.rounds, round_[node] + 1);
    });
    return std::move(result_);
  }

 private:
  template <typename Visit>
  void each_step(Visit visit) const {
    for (Node node = 0; node < steps_.size(); ++node) {
      const std::size_t rank = steps_.rank_of(node);
      const auto id = static_cast<StepId>(node - steps_.first(rank));
      visit(steps_[node], StepPlace{static_cast<int>(rank), id}, node);
    }
  }

  Node node_of(StepPlace place) const {
    return steps_.first(static_cast<std::size_t>(place.rank)) + place.step;
  }

  void add_dependencies() {
    each_step([&](const Step& step, StepPlace place, Node node) {
      for (StepId earlier : step.after) before_.add_edge(node_of({place.rank, earlier}), node);
    });
  }

  void add_messages_and_flags() {
    using Key = std::tuple<bool, int, int, std::uint32_t>;  // message, from, to, ordinal
    std::map<Key, StepPlace> sources;
    each_step([&](const Step& step, StepPlace place, Node) {
      if (step.kind == StepKind::kSend || step.kind == StepKind::kSignal) {
        sources[{step.kind == StepKind::kSend, place.rank, step.peer, step.ordinal}] = place;
      }
    });
    each_step([&](const Step& step, StepPlace place, Node node) {
      if (step.kind != StepKind::kRecv && step.kind != StepKind::kAwait) return;
      if (step.lag > 0) return;
      const StepPlace source =
          sources.at({step.kind == StepKind::kRecv, step.peer, place.rank, step.ordinal});
      before_.add_edge(node_of(source), node);
      result_.source[static_cast<std::size_t>(place.rank)][place.step] = source;
    });
  }

  /// Native steps with the same number start together.
  void add_meetings() {
    using Key = std::tuple<NativeGroup, int, std::uint32_t>;  // group, node, ordinal
    std::map<Key, Node> meetings;
    each_step([&](const Step& step, StepPlace place, Node node) {
      if (step.kind != StepKind::kNative) return;
      const int where = step.group == NativeGroup::kNode ? grid_.node(place.rank) : 0;
      auto [meeting, is_new] = meetings.try_emplace({step.group, where, step.ordinal});
      if (is_new) {
        meeting->second = before_.add_node();
        round_.push_back(0);
      }
      for (StepId earlier : step.after) {
        before_.add_edge(node_of({place.rank, earlier}), meeting->second);
      }
      before_.add_edge(meeting->second, node);
    });
  }

  AllSteps steps_;
  const ProcessGrid& grid_;
  HappensBefore before_;
  std::vector<std::size_t> round_;  // by node
  ScheduleOrder result_;
};

}  // namespace

ScheduleOrder order_of(std::span<const Schedule> schedules, const ProcessGrid& grid) {
  return Ordering(schedules, grid).run();
}

}  // namespace kolo
