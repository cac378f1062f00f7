#include "comm/schedule/launch_order.h"

#include <algorithm>

namespace kolo {
namespace {

/// Ordinal of the first message with a launch number; messages of schedules use smaller ordinals.
constexpr std::uint32_t kFirstTurn = std::uint32_t{1} << (kTagOrdinalBits - 1);

}  // namespace

LaunchOrder::LaunchOrder(Transport& transport, const ProcessGrid& grid)
    : transport_(transport),
      rank_(transport.rank()),
      node_ranks_(grid.ranks_of_node(grid.node(transport.rank()))) {
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const int first = grid.ranks_of_node(node).front();
    if (first != 0) other_first_ranks_.push_back(first);
  }
}

LaunchOrder::Launch::Launch(const Step& step, BucketId of, std::uint32_t first_flag)
    : group(step.group), bucket(of), flag(first_flag + step.ordinal), ordinal(step.ordinal) {}

Tag LaunchOrder::tag(const Launch& launch, std::uint64_t iteration) const {
  return {.source = 0,
          .bucket = launch.bucket,
          .iteration = static_cast<std::uint32_t>(iteration),
          .ordinal = kFirstTurn + launch.ordinal};
}

void LaunchOrder::begin(Launch& launch, std::uint64_t iteration) {
  if (launch.group != NativeGroup::kWorld || !is_first_of_node()) return;
  launch.turns.resize(rank_ == 0 ? other_first_ranks_.size() : 1);
  if (rank_ == 0) return;
  launch.turns.front() = {};
  transport_.irecv(0, tag(launch, iteration),
                   std::as_writable_bytes(std::span(&launch.world_number, 1)),
                   launch.turns.front());
}

bool LaunchOrder::is_next_of_world(Launch& launch, std::uint64_t iteration) {
  if (rank_ != 0) {
    return launch.turns.front().state == Completion::State::kDone &&
           launch.world_number == world_launches_ + 1;
  }
  launch.world_number = world_launches_ + 1;
  for (std::size_t i = 0; i < other_first_ranks_.size(); ++i) {
    transport_.isend(other_first_ranks_[i], tag(launch, iteration),
                     std::as_bytes(std::span(&launch.world_number, 1)), launch.turns[i]);
  }
  return true;
}

bool LaunchOrder::take_turn(Launch& launch, std::uint64_t iteration) {
  if (!is_first_of_node()) {
    if (transport_.signalled(node_ranks_.front(), launch.flag) != node_launches_ + 1) return false;
    ++node_launches_;
    return true;
  }
  if (launch.group == NativeGroup::kWorld) {
    if (!is_next_of_world(launch, iteration)) return false;
    ++world_launches_;
  }
  ++node_launches_;
  for (int peer : node_ranks_) {
    if (peer != rank_) transport_.signal(peer, launch.flag, node_launches_);
  }
  return true;
}

bool LaunchOrder::busy(const Launch& launch) {
  return std::any_of(launch.turns.begin(), launch.turns.end(), [](const Completion& turn) {
    return turn.state == Completion::State::kPending;
  });
}

}  // namespace kolo
