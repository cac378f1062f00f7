#include <cmath>

#include "comm/collective/algorithm.h"
#include "comm/collective/host_pieces.h"
#include "comm/goals/goal_price.h"

namespace kolo {
namespace {

bool serves(const Goal& goal, const BucketLayout& layout, const ProcessGrid&) {
  return goal.kind == GoalKind::kBroadcast && !layout.is_on_device() && !layout.out_of_place;
}

void append(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context) {
  for (const Extent& piece : host_pieces(builder.layout(), context.grid, context.options)) {
    builder.next_chunk();
    append_broadcast(builder, piece, goal.root, context.grid);
  }
}

double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  const GoalPrice price(links, size);
  const double chunk = std::min(
      size.bytes, static_cast<double>(host_chunk_bytes(links.grid(), MemoryKind::kHost, options)));
  const double rounds = chunk > 0 ? size.bytes / chunk : 1;
  const double hops = price.doublings();
  Passage one = hops * links.messages(2);
  one.link_us = one.one_way_us = hops * links.link_us(chunk);
  one.processor_us += price.copies_us() / rounds;
  return price.rounds_us(one, rounds);
}

}  // namespace

constinit const GoalAlgorithm goal_algorithms::tree{
    .name = "tree", .serves = serves, .append = append, .predict_us = predict_us};

}  // namespace kolo
