#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/algorithms/host/collective_price.h"
#include "comm/algorithms/host/staged_plan.h"
#include "comm/algorithms/host/sums.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

using ChunkNumbers = std::vector<std::optional<std::size_t>>;

/// Returns the addends of each share: all contributions, or the sums of nodes. Each node sends its
/// sums to the next node first, so that nodes do not all send to the same node.
std::vector<ChunkNumbers> add_up_nodes(StagedChunks& chunks, const PieceRound& round,
                                       std::span<const std::vector<Addends>> handed) {
  struct NodeSum {
    int distance = 0;
    std::size_t share = 0, index = 0;
  };
  const ProcessGrid& grid = chunks.grid();
  std::vector<NodeSum> sums;
  std::vector<ChunkNumbers> addends(handed.size());
  for (std::size_t i = 0; i < handed.size(); ++i) {
    const int adder = round.shares[i].adder;
    if (handed[i].size() == 1 && handed[i].front().adder == adder) {
      addends[i] = handed[i].front().chunks;
      continue;
    }
    addends[i].resize(handed[i].size());
    for (std::size_t index = 0; index < handed[i].size(); ++index) {
      const int nodes = grid.num_nodes();
      const int places = grid.node(adder) - grid.node(handed[i][index].adder);
      sums.push_back({(places + nodes) % nodes, i, index});
    }
  }
  std::ranges::stable_sort(sums, {}, &NodeSum::distance);
  for (const auto& [distance, share, index] : sums) {
    addends[share][index] =
        sum_of_node(chunks, round.pieces[share], handed[share][index], round.shares[share].adder);
  }
  return addends;
}

// Data that is not summed takes the shortest path: receivers of the same node read the
// contributor's slot, and a piece enters each other node once. Contributions to sums are passed to
// the receiver, which sums in rank order, or first to a rank of their node, which sums the node's
// contributions:
//   moved     contributor's slot -> receivers of its node
//             contributor's slot -> slot of one receiver in another node -> the others there
//   summed    contributors' slots -> the receiver
//             contributors' slots -> a rank of their node -> the receiver
void append_round(StagedChunks& chunks, const PieceRound& round) {
  for (const Move& move : round.moves) {
    const SumShare& share = round.shares[move.share];
    if (share.sums()) continue;
    if (share.is_put) {
      put(chunks, round.pieces[move.share], move.contributor, share.receivers);
    } else {
      spread(chunks, {.piece = round.pieces[move.share], .holder = move.contributor},
             share.receivers);
    }
  }
  const auto handed = hand_over(chunks, round);
  auto addends = add_up_nodes(chunks, round, handed);
  for (std::size_t i = 0; i < handed.size(); ++i) {
    const SumShare& share = round.shares[i];
    if (!share.sums() || round.pieces[i].count == 0) continue;
    spread(chunks,
           {.piece = round.pieces[i],
            .holder = share.adder,
            .addends = std::move(addends[i]),
            .finishes = true},
           share.receivers);
  }
}

/// Whether a reduce is cut into shares. Without shares, the receiver of a large sum receives and
/// sums all of it while other processors and links are idle. With arenas on one node, shares pay
/// once a share is large enough to be exposed: its sum is written directly to its destination.
/// Otherwise a share passes through two slots, and two ranks are faster without shares.
bool takes_shares(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  if (spec.kind != CollectiveKind::kReduce) return false;
  const std::size_t contributors = spec.part(0).contributors.size();
  if (grid.num_nodes() == 1 && layout.in_arenas) {
    return layout.bytes() >= contributors * least_exposed(options.link_costs).mapped;
  }
  return contributors > 2 && layout.bytes() > slot_bytes(layout.bytes(), options);
}

/// Returns the largest piece in bytes. While the root of a reduce on one node sums a piece, the
/// other ranks pack the next one. A few pieces suffice for this; smaller pieces cost more flags.
std::size_t most_piece_bytes(const CompileContext& context) {
  constexpr std::size_t kPieces = 16, kLeastBytes = std::size_t{8} << 10;
  const bool packs_ahead = context.spec.kind == CollectiveKind::kReduce &&
                           context.grid.num_nodes() == 1 && !takes_shares(context);
  return packs_ahead ? std::max(context.layout.bytes() / kPieces, kLeastBytes)
                     : std::numeric_limits<std::size_t>::max();
}

/// Cast elements are served only for a reduce-scatter. Other sums of cast elements would add the
/// sums of nodes one by one and round each time.
bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  if (spec.kind == CollectiveKind::kAllReduce) return false;
  const bool is_cast = spec.kind == CollectiveKind::kReduceScatter &&
                       layout.placement == Placement::kStaged && layout.memory == MemoryKind::kHost;
  return layout.is_in_tensors(MemoryKind::kHost) || is_cast;
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  append_staged_chunks(
      builder, context,
      {.append_round = append_round,
       .in_shares = takes_shares(context),
       .puts = context.grid.num_nodes() == 1 && context.layout.is_in_tensors(MemoryKind::kHost),
       .most_piece_bytes = most_piece_bytes(context)});
}

double predict_us(const HostLinks& links, const CollectiveSize& size,
                  const CompileOptions& options) {
  const CollectivePrice price(links, size);
  const auto slot = static_cast<double>(slot_bytes(static_cast<std::size_t>(size.bytes), options));
  double bytes = price.direct_bytes();
  double messages = price.direct_messages();
  if (size.kind == CollectiveKind::kReduce && size.bytes > slot && price.ranks() > 2) {
    // Each rank sums a share and passes it on.
    bytes *= 1 / price.nodes();
    bytes += (price.nodes() - 1) / price.nodes() * size.bytes;
    messages += price.ranks() - price.local();
  }
  const double rounds = std::max(1.0, price.part_bytes() * (messages + 1) / slot);
  StageCost one = price.has_root() ? links.messages_of_root(messages) : links.messages(messages);
  one.link_us = one.one_way_us = price.link_us(bytes, !price.is_from_root()) / rounds;
  one.processor_us += price.copies_us() / rounds;
  if (!price.goes_straight()) one.wait_us += price.handed_on_us();
  return price.rounds_us(one, rounds);
}

constinit const CollectiveAlgorithm kDirect(
    {.name = "direct", .serves = serves, .append = append, .predict_us = predict_us});

}  // namespace

constinit const Algorithm& algorithms::direct = kDirect;
}  // namespace kolo
