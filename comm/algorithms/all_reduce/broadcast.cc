
#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// One head per node sends and receives between nodes: the root on its node, the leader on other
// nodes. Heads form a binomial tree in node order, rotated so that the root is first:
//
//   heads, position from the root     0 -> 4 | 0 -> 2 | 0 -> 1, 2 -> 3, 4 -> 5
int head_of_node(const ProcessGrid& grid, int node, int root) {
  return node == grid.node(root) ? root : grid.leader(node);
}

void pass_between_heads(ScheduleBuilder& builder, const Range& whole, int root,
                        const ProcessGrid& grid) {
  const auto node = static_cast<std::size_t>(grid.node(builder.rank()));
  const auto nodes = static_cast<std::size_t>(grid.num_nodes());
  const auto root_node = static_cast<std::size_t>(grid.node(root));
  const std::size_t position = (node + nodes - root_node) % nodes;
  const auto head_at = [&](std::size_t other) {
    return head_of_node(grid, static_cast<int>((other + root_node) % nodes), root);
  };
  std::size_t distance = 1;
  while (distance < nodes && (position & distance) == 0) distance *= 2;
  if (position != 0) builder.recv(head_at(position - distance), whole);
  while ((distance /= 2) >= 1) {
    if (position + distance < nodes) builder.send(head_at(position + distance), whole);
  }
}

}  // namespace

void append_broadcast(ScheduleBuilder& builder, Extent extent, int root, const ProcessGrid& grid) {
  const int rank = builder.rank();
  const int node = grid.node(rank);
  const int head = head_of_node(grid, node, root);
  const Range whole = builder.bucket(extent.offset, extent.count);

  if (rank == root) builder.load(whole);
  if (rank == head) {
    pass_between_heads(builder, whole, root, grid);
    for (int peer : grid.ranks_of_node(node)) {
      if (peer != head) builder.signal(peer, whole, Access::kRead);
    }
    if (rank != root || builder.layout().out_of_place) builder.deliver(whole, Sink::kUser);
    for (int peer : grid.ranks_of_node(node)) {
      if (peer != head) builder.await(peer, whole);
    }
  } else {
    const Range source = builder.bucket_of(head, extent.offset, extent.count);
    builder.await(head, source);
    builder.deliver(source, Sink::kUser);
    builder.signal(head, source, Access::kWrite);
  }
}

}  // namespace kolo
