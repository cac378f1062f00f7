#include "comm/goals/device/shared_out.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/goals/device/part_exchange.h"
#include "comm/goals/device/rooted_route.h"
#include "comm/goals/goal_price.h"

namespace kolo {
namespace {

/// The shares of one piece, by tensor and place.
using Shares = std::vector<std::vector<Extent>>;

/// Pieces of nothing are left out. The first place has a share of all others.
std::vector<Shares> shares_of_pieces(const ScheduleBuilder& builder, const Places& places,
                                     const RootedRoute& route) {
  std::vector<Shares> pieces;
  for (std::size_t piece = 0; piece < route.pieces; ++piece) {
    Shares shares;
    std::size_t count = 0;
    for (std::size_t i = 0; i < places.tensors(); ++i) {
      shares.push_back(places.shares(i, piece, route.pieces, builder.layout().dtype));
      count += shares.back().front().count;
    }
    if (count > 0) pieces.push_back(std::move(shares));
  }
  return pieces;
}

/// Scratch memory for this rank's share of each piece. Pieces take turns.
class ShareSlots {
 public:
  static constexpr std::size_t kTurns = 4;

  /// `pieces` outlive it.
  ShareSlots(ScheduleBuilder& builder, const Places& places, const std::vector<Shares>& pieces)
      : place_(places.place()), tensors_(places.tensors()), pieces_(pieces) {
    std::vector<std::size_t> most(kTurns * tensors_);
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      for (std::size_t i = 0; i < tensors_; ++i) {
        std::size_t& count = most[slot_of(piece, i)];
        count = std::max(count, pieces[piece][i][place_].count);
      }
    }
    for (const std::size_t count : most) slots_.push_back(builder.scratch(count));
  }

  Range at(std::size_t piece, std::size_t tensor) const {
    Range slot = slots_[slot_of(piece, tensor)];
    slot.count = pieces_[piece][tensor][place_].count;
    return slot;
  }

 private:
  std::size_t slot_of(std::size_t piece, std::size_t tensor) const {
    return piece % kTurns * tensors_ + tensor;
  }

  std::size_t place_, tensors_;
  const std::vector<Shares>& pieces_;
  std::vector<Range> slots_;
};

class Reduce {
 public:
  Reduce(ScheduleBuilder& builder, const Places& places, int root, const RootedRoute& route)
      : builder_(builder),
        places_(places),
        root_(root),
        edges_(places.edges(route.shape)),
        pieces_(shares_of_pieces(builder, places, route)),
        sums_(builder, places, pieces_) {
    for (std::size_t i = 0; i < edges_.below.size(); ++i) {
      received_.emplace_back(builder, places, pieces_);
    }
  }

  /// Each node adds up a few pieces before the first has gone up.
  void append() {
    for (std::size_t i = 0; i < pieces_.size() + ShareSlots::kTurns; ++i) {
      if (i >= ShareSlots::kTurns) pass_up(i - ShareSlots::kTurns);
      if (i < pieces_.size()) add_up(i);
    }
  }

 private:
  void add_up(std::size_t piece) {
    std::vector<Range> sums, parts;
    for (std::size_t i = 0; i < places_.tensors(); ++i) {
      sums.push_back(sums_.at(piece, i));
      for (const Extent& share : pieces_[piece][i]) parts.push_back(input(builder_, share));
    }
    builder_.reduce_parts(NativeGroup::kNode, std::move(sums), std::move(parts), false);
  }

  void pass_up(std::size_t piece) {
    PartExchange exchange(builder_, places_.tensors(), places_.size());
    for (std::size_t i = 0; i < places_.tensors(); ++i) {
      const std::vector<Extent>& shares = pieces_[piece][i];
      const Range sum = sum_of_branch(piece, i);
      if (edges_.above) builder_.send(places_.peer(*edges_.above), sum);
      exchange.give(i, places_.place_of(root_), sum);
      if (builder_.rank() != root_) continue;
      for (std::size_t place = 0; place < places_.size(); ++place) {
        exchange.get(i, place, home(builder_, shares[place]));
      }
    }
    if (!edges_.above) std::move(exchange).append_to(builder_, NativeGroup::kNode);
  }

  /// This rank's share, of this node and those below it.
  Range sum_of_branch(std::size_t piece, std::size_t tensor) {
    std::vector<Range> addends{sums_.at(piece, tensor)};
    for (std::size_t i = 0; i < edges_.below.size(); ++i) {
      addends.push_back(received_[i].at(piece, tensor));
      builder_.recv(places_.peer(edges_.below[i]), addends.back());
    }
    const Extent& share = pieces_[piece][tensor][places_.place()];
    const Range sum = builder_.rank() == root_ ? home(builder_, share) : addends.front();
    if (addends.size() > 1) builder_.reduce(sum, std::move(addends), !edges_.above);
    return sum;
  }

  ScheduleBuilder& builder_;
  const Places& places_;
  int root_;
  TreeEdges edges_;
  std::vector<Shares> pieces_;
  ShareSlots sums_;
  std::vector<ShareSlots> received_;  // by edge below
};

/// The root gives each rank of its node a share of each tensor, itself among them: what leaves the
/// node follows a call that all its ranks have launched.
void share_out(ScheduleBuilder& builder, const Places& places, int root, const Shares& shares) {
  PartExchange exchange(builder, places.tensors(), places.size());
  for (std::size_t i = 0; i < places.tensors(); ++i) {
    exchange.get(i, places.place_of(root), home(builder, shares[i][places.place()]));
    if (builder.rank() != root) continue;
    for (std::size_t place = 0; place < places.size(); ++place) {
      exchange.give(i, place, input(builder, shares[i][place]));
    }
  }
  std::move(exchange).append_to(builder, NativeGroup::kNode);
}

void pass_down(ScheduleBuilder& builder, const Places& places, const TreeEdges& edges,
               const Range& share) {
  if (edges.above) builder.recv(places.peer(*edges.above), share);
  for (auto node = edges.below.rbegin(); node != edges.below.rend(); ++node) {
    builder.send(places.peer(*node), share);
  }
}

// The root's node has all shares where they go out before it gathers any.
void append_broadcast(ScheduleBuilder& builder, const Places& places, int root,
                      const RootedRoute& route) {
  const TreeEdges edges = places.edges(route.shape);
  const std::vector<Shares> pieces = shares_of_pieces(builder, places, route);
  for (const Shares& shares : pieces) {
    if (!edges.above) share_out(builder, places, root, shares);
  }
  for (const Shares& of_tensors : pieces) {
    std::vector<Range> own, parts;  // by tensor; and place
    for (const std::vector<Extent>& shares : of_tensors) {
      own.push_back(home(builder, shares[places.place()]));
      pass_down(builder, places, edges, own.back());
      for (const Extent& share : shares) parts.push_back(home(builder, share));
    }
    builder.gather_parts(NativeGroup::kNode, std::move(own), std::move(parts));
  }
}

}  // namespace

void append_shared_out(ScheduleBuilder& builder, const Goal& goal, const Places& places,
                       const GoalContext& context) {
  const GoalSize size = size_of(goal, builder.layout());
  const HostLinks links(context.grid, context.options.link_costs, size.bytes);
  const RootedRoute route = cheapest_route(links, size, context.options);
  // As many native steps as the root's node has; elsewhere flags are numbered alike.
  builder.reserve_flags(narrow<std::uint32_t>(2 * route.pieces));
  if (goal.kind == GoalKind::kReduce) {
    Reduce(builder, places, goal.root, route).append();
  } else {
    append_broadcast(builder, places, goal.root, route);
  }
}

}  // namespace kolo
