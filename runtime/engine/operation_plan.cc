#include "runtime/engine/operation_plan.h"

#include "comm/base/carrier.h"
#include "comm/collective/chunking.h"
#include "fusion/segment_packer.h"

namespace kolo {
namespace {

template <typename Byte, typename Buffer>
Byte* at(Buffer* buffer, const std::optional<std::size_t>& offset) {
  return offset ? static_cast<Byte*>(buffer) + *offset : nullptr;
}

TensorBuffers tensor_of(const Operation& operation, std::size_t index) {
  if (!operation.tensors.empty()) return operation.tensors[index];
  return {.input = operation.input, .result = operation.buffer.data};
}

/// Whether contributions are multiplied as they are packed; the same on all ranks. So they are
/// without a step that could scale the result: where there is nothing to combine.
bool scales_contributions(const Operation& operation, int world_size) {
  return operation.op == ReduceOp::kPremulSum || operation.scales.before != 1 ||
         (world_size == 1 && operation.scales.after != 1);
}

BucketLayout layout_of(const Operation& operation, const Goal& goal, const ProcessGrid& grid) {
  const DType dtype = operation.buffer.dtype;
  // Where contributions are read from tensors and results go to tensors, an algorithm tells them
  // apart if the bucket is out of place, whether or not they are the same tensors.
  BucketLayout layout{
      .count = goal.count(),
      .dtype = Carrier::of(dtype).dtype,
      .op = carried(operation.op, dtype),
      .placement = Placement::kUser,
      .memory = operation.buffer.memory,
      .out_of_place = operation.out_of_place || scales_contributions(operation, grid.world_size())};
  if (layout.is_on_device()) {
    layout.placement = Placement::kStaged;
    const std::size_t unit = device_padding(grid, layout.dtype);
    layout.count = (layout.count + unit - 1) / unit * unit;
  }
  return layout;
}

BucketRequest request_for(const Operation& operation, const Goal& goal, const BucketLayout& layout,
                          const PlanInputs& inputs) {
  return goal.kind == GoalKind::kAllReduce ? all_reduce_request(operation.name, layout, inputs)
                                           : goal_request(operation.name, goal, layout, inputs);
}

}  // namespace

OperationTensors::OperationTensors(const Operation& operation, const Goal& goal, int rank) {
  std::vector<Place> ends(std::max<std::size_t>(operation.tensors.size(), 1),
                          Place{.result = 0, .input = 0});
  const Carrier carrier = Carrier::of(operation.buffer.dtype);
  for (std::size_t i = 0; i < goal.parts.size(); ++i) {
    const Goal::Part& part = goal.parts[i];
    const bool contributes = part.contributes(rank);
    const bool receives = part.receives(rank);
    if (part.extent.count == 0 || !(contributes || receives)) continue;
    std::size_t offset = part.extent.offset;
    for (std::size_t tensor = 0; tensor < ends.size(); ++tensor) {
      const std::size_t count = operation.count_in(tensor, i) * carrier.per_element;
      if (count == 0) continue;
      const std::size_t bytes = count * size_of(carrier.dtype);
      Place& end = ends[tensor];
      Place place{.tensor = tensor};
      if (receives || !operation.out_of_place) {
        place.result = end.result;
        *end.result += bytes;
      }
      if (contributes && operation.out_of_place) {
        place.input = end.input;
        *end.input += bytes;
      }
      const TensorBuffers buffers = tensor_of(operation, tensor);
      places_.push_back(place);
      segments_.push_back({.data = at<std::byte>(buffers.result, place.result),
                           .input = at<const std::byte>(buffers.input, place.input),
                           .dtype = carrier.dtype,
                           .count = count,
                           .offset = offset});
      offset += count;
    }
  }
}

void OperationTensors::bind(const Operation& operation) {
  if (scaling_) scaling_->set_scale(operation.scales.before * factor_);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const TensorBuffers buffers = tensor_of(operation, place.tensor);
    packer_->rebind(i, at<std::byte>(buffers.result, place.result),
                    at<const std::byte>(buffers.input, place.input));
  }
}

PlannedOperation plan_operation(const Operation& operation, const PlanContext& context) {
  const Goal goal = operation.goal(context.grid.world_size());
  const BucketLayout layout = layout_of(operation, goal, context.grid);
  const PlanInputs inputs = context.inputs();
  PlannedOperation planned{
      .bucket = plan_bucket(request_for(operation, goal, layout, inputs), inputs),
      .tensors = OperationTensors(operation, goal, context.transport.rank())};
  Binding& binding = planned.bucket.binding;
  const std::vector<Segment>& segments = planned.tensors.segments();
  if (layout.is_on_device()) {
    auto packer = make_device_packer(context, planned.bucket.schedule, segments);
    binding.inputs = {nullptr};
    binding.stream_packer = packer;
    planned.tensors.set_packer(std::move(packer));
  } else {
    auto packer = std::make_shared<SegmentPacker>(layout.dtype, segments);
    binding.packer = packer;
    const int ranks = context.grid.world_size();
    binding.packs_contributions = scales_contributions(operation, ranks);
    binding.scale *= operation.scales.after;
    if (binding.packs_contributions) {
      planned.tensors.set_scaling(packer, ranks == 1 ? operation.scales.after : 1.0);
    }
    planned.tensors.set_packer(std::move(packer));
  }
  return planned;
}

}  // namespace kolo
