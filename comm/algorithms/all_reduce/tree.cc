#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// A binomial tree rooted at position 0. In round d = 1, 2, 4, ... every position p whose lowest set
// bit is d sends its sum to p - d. The result is sent back along the same edges. For n = 6:
//
//   up     1->0 3->2 5->4 | 2->0 | 4->0        down   0->4 | 0->2 | 0->1 2->3 4->5
void exchange(ScheduleBuilder& builder, const Stage& stage) {
  const std::size_t size = stage.size();
  const std::size_t position = stage.position(builder.rank());
  const Range whole = builder.bucket(stage.extent.offset, stage.extent.count);

  std::size_t distance = 1;
  for (; distance < size && (position & distance) == 0; distance *= 2) {
    if (position + distance >= size) continue;
    const Range received = builder.scratch(whole.count);
    builder.recv(stage.group[position + distance], received);
    const bool last = position == 0 && distance * 2 >= size;
    builder.reduce(whole, {whole, received}, stage.finishes && last);
  }
  if (position != 0) {
    builder.send(stage.group[position - distance], whole);
    builder.recv(stage.group[position - distance], whole);
  }
  while ((distance /= 2) >= 1) {
    if (position + distance < size) builder.send(stage.group[position + distance], whole);
  }
  builder.deliver(whole, stage.sink);
}

StageCost price(const HostLinks& links, double bytes) {
  const int ranks = links.grid().world_size();
  StageCost all;
  for (int distance = 1; distance < ranks; distance *= 2) {
    Round round(links);
    for (int rank = distance; rank < ranks; rank += 2 * distance) round.add(rank, rank - distance);
    all += round.there_and_back(bytes);
    all.processor_us += links.combine_us(links.largest_node(), 2, bytes);
  }
  return all;
}

}  // namespace

constinit const FlatAllReduce all_reduce::tree{.name = "tree",
                                               .memories = {.host = true, .device = true},
                                               .auto_choice = {.host = true},
                                               .exchange = exchange,
                                               .price = price};

}  // namespace kolo
