#include <algorithm>
#include <bit>

#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// With n = 2^k ranks, in each round a rank sends to its partner the half of its interval that the
// partner keeps, and adds the received half to the other. Then the intervals are gathered in
// reverse order. For n = 4, the parts that rank 2 holds, and its partners:
//
//   0 1 2 3  --0-->  2 3  --3-->  2  --3-->  2 3  --0-->  0 1 2 3
//
// If n is not a power of two, let s be the largest power of two below n. Rank p >= s sends its
// extent to rank p - s, which adds it to its extent and sends back the result at the end.
//
// Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005.
struct Interval {
  std::size_t first, last;  // parts
};

Range parts(const ScheduleBuilder& builder, const Stage& stage, std::size_t size,
            Interval interval) {
  const DType dtype = builder.layout().dtype;
  const std::size_t begin = part_of(stage.extent, size, interval.first, dtype).offset;
  return builder.bucket(begin, part_of(stage.extent, size, interval.last, dtype).end() - begin);
}

void exchange(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t size = std::bit_floor(stage.size());
  const std::size_t position = stage.position(builder.rank());
  const Range whole = builder.bucket(stage.extent.offset, stage.extent.count);

  if (position >= size) {
    builder.send(stage.group[position - size], whole);
    builder.recv(stage.group[position - size], whole);
    builder.deliver(whole, stage.sink);
    return;
  }
  const bool has_guest = position + size < stage.size();
  if (has_guest) {
    const Range received = builder.scratch(whole.count);
    builder.recv(stage.group[position + size], received);
    builder.reduce(whole, {whole, received}, stage.finishes && size == 1);
  }

  Interval kept{0, size - 1};
  for (std::size_t distance = size / 2; distance >= 1; distance /= 2) {
    const std::size_t middle = kept.first + distance;
    const bool upper = (position & distance) != 0;
    const Interval given = upper ? Interval{kept.first, middle - 1} : Interval{middle, kept.last};
    kept = upper ? Interval{middle, kept.last} : Interval{kept.first, middle - 1};
    const int partner = stage.group[position ^ distance];
    const Range own = parts(builder, stage, size, kept);
    const Range received = builder.scratch(own.count);
    builder.send(partner, parts(builder, stage, size, given));
    builder.recv(partner, received);
    builder.reduce(own, {own, received}, stage.finishes && distance == 1);
  }
  for (std::size_t distance = 1; distance < size; distance *= 2) {
    const Interval got = (position & distance) != 0
                             ? Interval{kept.first - distance, kept.first - 1}
                             : Interval{kept.last + 1, kept.last + distance};
    const int partner = stage.group[position ^ distance];
    builder.send(partner, parts(builder, stage, size, kept));
    builder.recv(partner, parts(builder, stage, size, got));
    kept = {std::min(kept.first, got.first), std::max(kept.last, got.last)};
  }
  if (has_guest) builder.send(stage.group[position + size], whole);
  builder.deliver(whole, stage.sink);
}

StageCost price(const HostLinks& links, double bytes) {
  const int ranks = links.grid().world_size();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  StageCost all;
  if (ranks > power) {  // Adds the exchange with ranks above the power of two.
    Round fold(links);
    for (int rank = power; rank < ranks; ++rank) fold.add(rank, rank - power);
    all += fold.there_and_back(bytes);
    all.processor_us += links.combine_us(links.largest_node(), 2, bytes);
  }
  double part = bytes;
  for (int distance = power / 2; distance >= 1; distance /= 2) {
    part = std::max(part / 2, std::min(bytes, static_cast<double>(kWireAlignment)));
    // Ranks that send the parts from `first` on. These parts are empty for a small bucket.
    Round round(links);
    for (int rank = 0; rank < power; ++rank) {
      const int first = (rank ^ distance) & ~(distance - 1);
      if (first < links.owners(power)) round.add(rank, rank ^ distance);
    }
    all += 2.0 * round.stage_cost(part);
    all.processor_us += links.combine_us(links.largest_node(), 2, part);
  }
  return all;
}

}  // namespace

constinit const FlatAllReduce all_reduce::halving_doubling{
    .name = "halving_doubling",
    .memories = {.host = true, .device = true},
    .auto_choice = {.host = true},
    .exchange = exchange,
    .price = price};

}  // namespace kolo
