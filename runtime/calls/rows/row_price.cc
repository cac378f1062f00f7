#include "runtime/calls/rows/row_price.h"

#include <cmath>
#include <cstdint>

#include "comm/algorithms/choose.h"
#include "comm/coordinator/combining_tree.h"
#include "topology/node_memory.h"

namespace kolo {
namespace {

/// Bytes that a row's index adds to it.
constexpr double kIndexBytes = sizeof(std::int64_t);

/// One trip up and down.
double agreement_us(const ProcessGrid& grid, const LinkCosts& costs) {
  double us = grid.largest_node() > 1 ? 2 * costs.memory.latency_us : 0;
  const int deepest = grid.leader(grid.num_nodes() - 1);
  for (auto place = CombiningTree::build(deepest, grid); place.parent >= 0;
       place = CombiningTree::build(place.parent, grid)) {
    us += 2 * (costs.network.latency_us + 2 * costs.network.message_us);
  }
  return us;
}

class RowPricing {
 public:
  RowPricing(const RowSize& size, const PlanInputs& inputs)
      : size_(size),
        inputs_(inputs),
        options_{.algorithm = inputs.algorithm,
                 .network_window = inputs.options.network_window,
                 .link_costs = inputs.costs} {}

  /// The counts change at each call, so each exchange of rows is agreed on anew; the sums are
  /// counted in between.
  double rows_us() const {
    const double ranks = inputs_.grid.world_size();
    const double sent = ranks * size_.busiest;  // As if all ranks were as busy.
    return exchange_us(GoalKind::kAllToAll, sent) +
           bytes_us(GoalKind::kAllGather, ranks * kIndexBytes) +
           exchange_us(GoalKind::kAllGather, size_.distinct) +
           2 * agreement_us(inputs_.grid, inputs_.costs) +
           memory_us((size_.busiest + size_.distinct / ranks) * size_.row_bytes());
  }

  double table_us() const {
    return goal_us(GoalKind::kAllReduce, size_.height * size_.width, size_.dtype, size_.memory);
  }

 private:
  bool is_on_device() const { return size_.memory == MemoryKind::kDevice; }

  /// Rows with their indices, which are in host memory.
  double exchange_us(GoalKind kind, double rows) const {
    if (!is_on_device()) return bytes_us(kind, rows * (size_.row_bytes() + kIndexBytes));
    return bytes_us(kind, rows * kIndexBytes) +
           bytes_us(kind, rows * size_.row_bytes(), MemoryKind::kDevice);
  }

  double bytes_us(GoalKind kind, double bytes, MemoryKind memory = MemoryKind::kHost) const {
    return goal_us(kind, static_cast<std::size_t>(bytes), DType::kUInt8, memory);
  }

  double goal_us(GoalKind kind, std::size_t count, DType dtype, MemoryKind memory) const {
    const BucketLayout layout{
        .count = count, .dtype = dtype, .placement = Placement::kUser, .memory = memory};
    // Prices take parts to be equal.
    const Goal goal = even_goal(kind, inputs_.grid.world_size(), count);
    return choose({goal, layout, inputs_.grid, options_}).price.us;
  }

  /// All ranks of a node read or write so many bytes each.
  double memory_us(double bytes) const {
    if (is_on_device()) return 0;  // Several times as fast as its links.
    const double all = inputs_.grid.largest_node() * bytes;
    return NodeMemory(inputs_.costs.memory, all).own_us(all);
  }

  const RowSize& size_;
  const PlanInputs& inputs_;
  const CompileOptions options_;
};

}  // namespace

RowPrices price_rows(const RowSize& size, const PlanInputs& inputs) {
  const RowPricing pricing(size, inputs);
  return {.rows_us = pricing.rows_us(), .table_us = pricing.table_us()};
}

}  // namespace kolo
