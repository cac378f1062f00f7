#include "comm/algorithms/compile.h"

#include <algorithm>
#include <string>
#include <utility>

#include "comm/algorithms/choose.h"
#include "comm/algorithms/host_pieces.h"

namespace kolo {
namespace {

/// No message is longer than the bucket, so a ring that holds it twice is never full.
DeviceMessages device_messages(const BucketLayout& layout, const CompileOptions& options) {
  if (!layout.is_on_device()) return {};
  const std::size_t twice = std::max(2 * layout.bytes(), 2 * kWireAlignment);
  return {.are_direct = options.network_takes_device_memory,
          .staging_count = std::min(options.staging_bytes, twice) / size_of(layout.dtype)};
}

}  // namespace

Schedule compile(int rank, const Algorithm& algorithm, const CompileContext& context) {
  const auto& [goal, layout, grid, options] = context;
  ScheduleBuilder builder(rank, std::string(algorithm.name()), layout,
                          device_messages(layout, options), window_width(layout, grid, options));
  algorithm.append(builder, context);
  Schedule schedule = std::move(builder).build();
  schedule.eager = may_be_eager(layout, grid, options);
  schedule.mutual = goal.kind == GoalKind::kAllReduce || goal.is_mutual();
  return schedule;
}

Schedule compile(int rank, const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid,
                 const CompileOptions& options) {
  const CompileContext context{goal, layout, grid, options};
  return compile(rank, *choose(context).algorithm, context);
}

}  // namespace kolo
