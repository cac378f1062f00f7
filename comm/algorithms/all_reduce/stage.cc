#include "comm/algorithms/all_reduce/stage.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo {

std::size_t Stage::position(int rank) const {
  const auto it = std::find(group.begin(), group.end(), rank);
  ensure(it != group.end(), "rank is not in the group of its stage");
  return static_cast<std::size_t>(it - group.begin());
}

void append_by_messages(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                        AppendStage exchange, int send_order) {
  const bool on_host = builder.layout().memory == MemoryKind::kHost;
  for (const Stage& stage : stages) {
    if (on_host) {
      builder.next_chunk();
      load_parts(builder, stage, send_order);
    }
    exchange(builder, stage);
  }
}

}  // namespace kolo
