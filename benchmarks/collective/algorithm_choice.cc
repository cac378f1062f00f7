#include "benchmarks/collective/algorithm_choice.h"

#include <cstdint>

#include "comm/algorithms/compile.h"
#include "runtime/buckets/bucket_plan.h"
#include "runtime/buckets/storage_type.h"

namespace kolo::bench {
namespace {

/// The collective and the bucket layout of a case, in storage types.
struct Request {
  CollectiveSpec spec;
  BucketLayout layout;

  Request(CollectiveCase what, int ranks) {
    what.op = carried(what.op, what.dtype);
    what.dtype = StorageType::of(what.dtype).dtype;
    spec = what.spec(ranks);
    layout = {.count = spec.count(),
              .dtype = what.wire.value_or(what.dtype),
              .op = what.op,
              .placement = what.wire.value_or(what.dtype) != what.dtype ? Placement::kStaged
                           : what.home == Home::kArena && what.verb == Verb::kAllReduce
                               ? Placement::kInPlace
                               : Placement::kUser,
              .out_of_place = !what.in_place};
  }
};

/// Makes the grid of the job's ranks. Ranks exchange the sizes of their nodes. Collective.
ProcessGrid grid_of(Runtime& runtime) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(runtime.num_nodes()));
  sizes[static_cast<std::size_t>(runtime.node())] = 1;
  runtime
      .all_reduce("bench node sizes", {sizes.data(), sizes.size(), DType::kInt64}, ReduceOp::kSum)
      .wait();
  return ProcessGrid::with_node_sizes(std::vector<int>(sizes.begin(), sizes.end()));
}

}  // namespace

AlgorithmChoice::AlgorithmChoice(Runtime& runtime)
    : grid_(grid_of(runtime)),
      costs_(parse_link_costs(runtime.link_costs())),
      tuning_(runtime.tuning()) {}

std::vector<std::string> AlgorithmChoice::algorithms(const CollectiveCase& what) const {
  const Request request(what, grid_.world_size());
  const CompileOptions options{.link_costs = costs_};
  std::vector<std::string> names;
  for (const Choice& each : considered({request.spec, request.layout, grid_, options})) {
    names.emplace_back(each.algorithm->name());
  }
  return names;
}

std::string AlgorithmChoice::taken(const CollectiveCase& what, const Options& options) const {
  const Request request(what, grid_.world_size());
  const PlanInputs inputs{.grid = grid_, .options = options, .costs = costs_, .tuning = &tuning_};
  return request_bucket("", request.spec, request.layout, inputs).compile(0).algorithm;
}

double AlgorithmChoice::predict_us(const std::string& algorithm, const CollectiveCase& what) const {
  const Request request(what, grid_.world_size());
  const CompileOptions options{.algorithm = algorithm, .link_costs = costs_};
  return choose({request.spec, request.layout, grid_, options}).price.us;
}

}  // namespace kolo::bench
