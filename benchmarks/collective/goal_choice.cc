#include "benchmarks/collective/goal_choice.h"

#include <cstdint>

#include "comm/algorithms/choose.h"
#include "runtime/plan/bucket_plan.h"
#include "runtime/plan/carrier.h"

namespace kolo::bench {
namespace {

/// The case in the numbers that travel.
CollectiveCase in_numbers(CollectiveCase what) {
  what.op = carried(what.op, what.dtype);
  what.dtype = Carrier::of(what.dtype).dtype;
  return what;
}

BucketLayout layout_of(const CollectiveCase& what, const Goal& goal) {
  return {.count = goal.count(),
          .dtype = what.wire.value_or(what.dtype),
          .op = what.op,
          .placement = what.home == Home::kArena && what.verb == Verb::kAllReduce
                           ? Placement::kInPlace
                           : Placement::kUser,
          .out_of_place = !what.in_place};
}

}  // namespace

GoalChoice::GoalChoice(Runtime& runtime)
    : grid_(grid_of(runtime)), costs_(parse_link_costs(runtime.link_costs())) {}

std::vector<std::string> GoalChoice::algorithms(const CollectiveCase& what) const {
  const Goal goal = in_numbers(what).goal(grid_.world_size());
  const BucketLayout layout = layout_of(in_numbers(what), goal);
  const CompileOptions options{.link_costs = costs_};
  std::vector<std::string> names;
  for (const Choice& each : considered({goal, layout, grid_, options})) {
    names.emplace_back(each.algorithm->name());
  }
  return names;
}

std::string GoalChoice::taken(const CollectiveCase& what, const Options& options) const {
  const Goal goal = in_numbers(what).goal(grid_.world_size());
  const PlanInputs inputs{.grid = grid_, .options = options, .costs = costs_};
  return request_bucket("", goal, layout_of(in_numbers(what), goal), inputs).compile(0).algorithm;
}

double GoalChoice::predict_us(const std::string& algorithm, const CollectiveCase& what) const {
  const Goal goal = in_numbers(what).goal(grid_.world_size());
  const CompileOptions options{.algorithm = algorithm, .link_costs = costs_};
  return choose({goal, layout_of(in_numbers(what), goal), grid_, options}).price.us;
}

ProcessGrid grid_of(Runtime& runtime) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(runtime.num_nodes()));
  sizes[static_cast<std::size_t>(runtime.node())] = 1;
  runtime.all_reduce("bench node sizes", {sizes.data(), sizes.size(), DType::kInt64},
                     ReduceOp::kSum);
  return ProcessGrid::with_node_sizes(std::vector<int>(sizes.begin(), sizes.end()));
}

}  // namespace kolo::bench
