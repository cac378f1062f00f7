#include "benchmarks/sim/simulated_machine.h"

#include <algorithm>
#include <utility>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/base/check.h"

namespace kolo {
namespace {

double value_of(const std::vector<double>& by_rank, int rank) {
  return by_rank[static_cast<std::size_t>(rank)];
}

}  // namespace

SimulatedMachine::SimulatedMachine(const ProcessGrid& grid, const SimulatorOptions& options)
    : grid_(grid), costs_(options.costs), is_reduced_(options.only_first_node) {
  place_ranks(options.slowness);
  furnish_nodes();
}

void SimulatedMachine::furnish_nodes() {
  const LinkCosts& links = costs_.links;
  for (int node = 0; node < grid_.num_nodes(); ++node) {
    const double rate = links.node_rate(node);
    check(!is_reduced_ || rate == links.node_rate(0),
          "nodes whose links are not equally fast are not alike");
    if (is_reduced_ && node > 0) continue;
    const SimulatedLink link(rate, links.network.burst_bytes);
    nodes_.push_back({.out = link, .in = link});
  }
}

void SimulatedMachine::place_ranks(const std::vector<double>& slowness) {
  const auto world = static_cast<std::size_t>(grid_.world_size());
  check(slowness.empty() || slowness.size() == world, "not one slowness per rank");
  check(slowness.empty() || are_alike(slowness), "nodes that are not equally slow are not alike");
  std::vector<int> order;
  for (int rank = 0; rank < grid_.world_size(); ++rank) {
    if (!is_reduced_ || grid_.node(rank) == 0) order.push_back(rank);
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(grid_.local_rank(a), grid_.node(a)) <
           std::pair(grid_.local_rank(b), grid_.node(b));
  });
  place_of_.assign(world, 0);
  for (int rank : order) {
    place_of_[static_cast<std::size_t>(rank)] = narrow<std::uint32_t>(ranks_.size());
    SimulatedRank& added = ranks_.emplace_back();
    added.number = rank;
    added.node = grid_.node(rank);
    added.slowness = slowness.empty() ? 1.0 : value_of(slowness, rank);
  }
}

int SimulatedMachine::first_like(int rank) const {
  return grid_.ranks_of_node(0)[static_cast<std::size_t>(grid_.local_rank(rank))];
}

std::uint32_t SimulatedMachine::place_of(int rank) const {
  return place_of_[static_cast<std::size_t>(is_reduced_ ? first_like(rank) : rank)];
}

SimulatedNode& SimulatedMachine::node_of(std::uint32_t place) {
  return nodes_[is_reduced_ ? 0 : static_cast<std::size_t>(ranks_[place].node)];
}

bool SimulatedMachine::are_alike(const std::vector<double>& by_rank) const {
  for (int rank = 0; is_reduced_ && rank < grid_.world_size(); ++rank) {
    if (value_of(by_rank, rank) != value_of(by_rank, first_like(rank))) return false;
  }
  return true;
}

NodeMemory SimulatedMachine::memory_of(const BucketLayout& layout) const {
  const auto bytes = static_cast<double>(layout.bytes());
  return {costs_.links.memory, bytes * grid_.local_size(grid_.leader(0))};
}

std::optional<double> SimulatedMachine::memory_us(const Step& step, const NodeMemory& memory,
                                                  bool is_inside) const {
  const auto bytes = static_cast<double>(step.bytes);
  if (step.kind == StepKind::kCodec) return std::nullopt;
  if (step.worker == Worker::kKernels) {
    const auto shared = static_cast<double>(step.shared_bytes);
    return memory.own_us(bytes - shared) + memory.shared_us(shared);
  }
  if (step.worker != Worker::kMessages || !is_inside) return std::nullopt;
  // A message is written to a ring buffer in shared memory and read from it.
  if (step.kind == StepKind::kSend) return memory.own_us(2 * bytes);
  if (step.kind != StepKind::kRecv) return std::nullopt;
  return memory.own_us(bytes) + memory.shared_us(bytes);
}

double SimulatedMachine::time_us(const Step& step) const {
  const auto bytes = static_cast<double>(step.bytes);
  if (step.kind == StepKind::kCodec) {
    const SelectorCost& selector = costs_.links.selector;
    return costs_.links.step_us + bytes / selector.bytes_per_us + step.entries * selector.pair_us;
  }
  if (step.worker == Worker::kMessages) {
    const bool is_flag = step.kind == StepKind::kSignal || step.kind == StepKind::kAwait;
    return is_flag ? costs_.links.step_us : costs_.links.network.message_us;
  }
  if (step.worker == Worker::kDown || step.worker == Worker::kUp) {
    return transfer_us(costs_.links.staging, bytes / 2);  // bytes are counted read plus written
  }
  return transfer_us(costs_.device_kernel, bytes);
}

double SimulatedMachine::native_us(NativeOp op, std::size_t most_bytes) const {
  const auto bytes = static_cast<double>(most_bytes);
  return op == NativeOp::kAllReduce ? kolo::native_us(grid_, costs_.links, bytes)
                                    : transfer_us(costs_.links.device, bytes);
}

}  // namespace kolo
