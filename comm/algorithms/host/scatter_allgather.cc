#include <algorithm>
#include <utility>
#include <vector>

#include "comm/algorithms/host/collective_price.h"
#include "comm/algorithms/host/staged_plan.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

/// A share takes at least the time of this many bytes, because of headers and packet handling. With
/// a value four times as large or small, choices are at most 1.13 times as slow on 3 and 4 nodes,
/// 1.6 times on 8 (kolo-sim collective, 4 B to 64 KiB, 1 to 100 Gbit/s).
constexpr double kPacketBytes = 512;

// The root sends each other node a share of a piece, and these nodes send their shares to each
// other. Each link carries the bytes about once, and all data is received after two consecutive
// messages.
//
//   broadcast from 0, 4 nodes     0 -> 1 (a), 0 -> 2 (b), 0 -> 3 (c)
//                                 1 -> 2, 3 (a)   2 -> 3, 1 (b)   3 -> 1, 2 (c)
//
// Source: van de Geijn's scatter and all-gather, as in Thakur, Rabenseifner and Gropp, IJHPCA 2005,
// with pipelined pieces and shares that are sent directly from node to node.
void append_round(StagedChunks& chunks, const PieceRound& round) {
  const ProcessGrid& grid = chunks.grid();
  for (const Move& move : round.moves) {
    const SumShare& share = round.shares[move.share];
    const Extent& piece = round.pieces[move.share];
    const auto number = static_cast<int>(share.number);
    const int own = grid.node(move.contributor);
    const int first = grid.node(share.adder);
    const auto others = [&](int node) {
      return others_of(grid, node, share.receivers, move.contributor);
    };
    StagedChunk sent{.piece = piece,
                     .holder = move.contributor,
                     .readers = others(own),
                     .to_readers = true,
                     .to_holder = share.receives(move.contributor)};
    if (first == own) {
      chunks.add(std::move(sent));
      continue;
    }
    StagedChunk arrived = relay(piece, number, move.contributor, others(first));
    sent.recipients = {arrived.holder};
    std::vector<StagedChunk> relayed;
    const auto pass_on = [&](int node, StagedChunk::Ranks members) {
      if (node == own) return;
      relayed.push_back(relay(piece, number, arrived.holder, std::move(members)));
      arrived.recipients.push_back(relayed.back().holder);
    };
    for_each_other_node(grid, first, share.receivers, move.contributor, pass_on);
    chunks.add(std::move(sent));
    chunks.add(std::move(arrived));
    for (StagedChunk& each : relayed) chunks.add(std::move(each));
  }
}

bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 2 &&
         spec.kind == CollectiveKind::kBroadcast;
}

/// `piece` is the number of bytes of a share that move in one round.
double predict_us(const HostLinks& links, const CollectiveSize& size, double piece) {
  const CollectivePrice price(links, size);
  const double others = price.nodes() - 1;
  const double share = std::max(size.bytes / others, kPacketBytes);
  const double rounds = std::max(1.0, share / std::max(piece, 1.0));
  // A node receives one share, and exchanges shares with all other nodes except the root.
  StageCost one = links.messages(1 + 2 * (others - 1));
  one.wait_us += links.costs().network.latency_us;
  one.one_way_us = price.link_us(others * share / rounds, true);
  one.link_us = one.one_way_us * (1 + (others - 1) / others);
  one.processor_us += price.copies_us() / rounds;
  one.wait_us += price.handed_on_us();
  return price.rounds_us(one, rounds);
}

std::size_t best_share_piece(const HostLinks& links, const CollectiveSize& size,
                             const CompileOptions& options) {
  const auto shares = static_cast<std::size_t>(links.grid().num_nodes() - 1);
  const std::size_t slot = slot_bytes(static_cast<std::size_t>(size.bytes), options);
  return best_piece(std::max<std::size_t>(1, slot / shares), size.bytes,
                    [&](double piece) { return predict_us(links, size, piece); });
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  const CollectiveSize size = size_of(context);
  const HostLinks links(context.grid, context.options.link_costs, size.bytes);
  append_staged_chunks(builder, context,
                       {.append_round = append_round,
                        .in_shares = true,
                        .most_piece_bytes = best_share_piece(links, size, context.options)});
}

double predict_best_us(const HostLinks& links, const CollectiveSize& size,
                       const CompileOptions& options) {
  const auto piece = static_cast<double>(best_share_piece(links, size, options));
  return predict_us(links, size, piece);
}

constinit const CollectiveAlgorithm kScatterAllGather({.name = "scatter_allgather",
                                                       .serves = serves,
                                                       .append = append,
                                                       .predict_us = predict_best_us});

}  // namespace

constinit const Algorithm& algorithms::scatter_allgather = kScatterAllGather;

}  // namespace kolo
