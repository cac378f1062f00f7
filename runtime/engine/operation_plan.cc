#include "runtime/engine/operation_plan.h"

#include <utility>
#include <vector>

#include "comm/collective/chunking.h"
#include "fusion/segment_packer.h"

namespace kolo {
namespace {

BucketLayout layout_of(const Operation& operation, const ProcessGrid& grid) {
  BucketLayout layout{.count = operation.buffer.count,
                      .dtype = operation.buffer.dtype,
                      .op = operation.op,
                      .placement = Placement::kUser,
                      .memory = operation.buffer.memory,
                      .out_of_place = operation.input != nullptr};
  if (layout.is_on_device()) {
    layout.placement = Placement::kStaged;
    const std::size_t unit = device_padding(grid, layout.dtype);
    layout.count = (layout.count + unit - 1) / unit * unit;
  }
  return layout;
}

}  // namespace

PlannedOperation plan_operation(const Operation& operation, const PlanContext& context) {
  const BucketLayout layout = layout_of(operation, context.grid);
  const PlanInputs inputs = context.inputs();
  PlannedOperation planned{
      .bucket = plan_bucket(operation.kind == OperationKind::kBroadcast
                                ? broadcast_request(operation.name, operation.root, layout, inputs)
                                : all_reduce_request(operation.name, layout, inputs),
                            inputs),
      .packer = {}};
  Binding& binding = planned.bucket.binding;
  std::vector<Segment> segments{{.data = operation.buffer.data,
                                 .input = operation.input,
                                 .dtype = layout.dtype,
                                 .count = operation.buffer.count,
                                 .offset = 0}};
  if (layout.is_on_device()) {
    auto packer = make_device_packer(context, planned.bucket.schedule, segments);
    binding.inputs = {nullptr};
    binding.stream_packer = packer;
    planned.packer = std::move(packer);
  } else {
    auto packer = std::make_shared<SegmentPacker>(layout.dtype, std::move(segments));
    binding.packer = packer;
    planned.packer = std::move(packer);
  }
  return planned;
}

}  // namespace kolo
