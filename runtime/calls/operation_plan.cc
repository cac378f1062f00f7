#include "runtime/calls/operation_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "fusion/pack_kernels.h"
#include "fusion/wire_packer.h"
#include "runtime/buckets/storage_type.h"

namespace kolo {
namespace {

template <typename Byte, typename Buffer>
Byte* at(Buffer* buffer, const std::optional<std::size_t>& offset) {
  return offset ? static_cast<Byte*>(buffer) + *offset : nullptr;
}

TensorBuffers tensor_of(const Operation& operation, std::size_t index) {
  TensorBuffers buffers = operation.tensors[index];
  if (operation.sends_copy()) buffers.input = buffers.result;
  return buffers;
}

/// Alignment of buffers in a bounce buffer, in bytes, for fast device copies.
constexpr std::size_t kBounceAlignment = 256;

/// Returns whether the packer scales contributions; equal on all ranks. With one rank it also
/// applies the scale of the result, because no step combines elements and could do so.
bool scales_contributions(const Operation& operation, int world_size) {
  return operation.op == ReduceOp::kPremulSum || operation.scales.before != 1 ||
         (world_size == 1 && operation.scales.after != 1);
}

bool is_several(const Operation& operation) { return operation.tensors.size() > 1; }

bool is_scaled(const Operation& operation) {
  return operation.op == ReduceOp::kPremulSum || operation.scales != Scales();
}

/// Returns whether native collectives, which combine only numbers, support the operation.
bool suits_native(const Operation& operation) {
  return !reduces(operation.kind) || is_number_op(carried(operation.op, operation.dtype));
}

/// Returns whether a native collective needs packing, which scales elements and joins tensors.
bool is_packed_for_native(const Operation& operation) {
  return is_scaled(operation) ||
         (operation.kind == OperationKind::kAllReduce && is_several(operation));
}

/// Chooses the bucket of an operation on device memory by predicted time: in device memory, packed
/// or not, or in host memory with the layout `layout`. `spec` has separate parts for each tensor.
/// The choice is equal on all ranks.
BucketLayout on_device(const Operation& operation, const CollectiveSpec& spec,
                       const BucketLayout& layout, const PlanContext& context) {
  check(context.copies != nullptr,
        "device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  if (context.streams == nullptr || !suits_native(operation)) return layout;
  const bool is_all_reduce = operation.kind == OperationKind::kAllReduce;
  const bool is_packed = is_packed_for_native(operation);
  std::vector<Placing> placings;
  BucketLayout device = layout;
  device.memory = MemoryKind::kDevice;
  device.replaces_inputs = operation.sends_copy();
  if (!is_packed) placings.push_back({spec, device});
  if (is_packed || is_all_reduce) {
    BucketLayout packed = device;
    packed.placement = Placement::kStaged;
    packed.out_of_place = false;  // The packer reads inputs, writes results.
    if (is_all_reduce) {
      const std::size_t unit = device_padding(context.grid, packed.dtype);
      packed.count = (packed.count + unit - 1) / unit * unit;
    }
    placings.push_back({merged(spec), packed});
  }
  const PlanInputs inputs = context.inputs();
  placings.push_back(
      {merged(spec), layout,
       bounce_us(spec, layout.dtype, context.grid.world_size(), inputs.costs.staging)});
  return placings[choose_placing(placings, context.grid,
                                 compile_options(MemoryKind::kDevice, inputs))]
      .layout;
}

BucketLayout layout_of(const Operation& operation, const CollectiveSpec& spec,
                       const PlanContext& context) {
  const ProcessGrid& grid = context.grid;
  const DType dtype = operation.dtype;
  // In an out-of-place bucket, an algorithm that reads and writes tensors directly treats
  // contributions and results as separate buffers, even if they are the same tensors.
  const BucketLayout layout{.count = spec.count(),
                            .dtype = StorageType::of(dtype).dtype,
                            .op = carried(operation.op, dtype),
                            .placement = Placement::kUser,
                            .out_of_place = operation.out_of_place || operation.sends_copy() ||
                                            scales_contributions(operation, grid.world_size())};
  if (operation.wire) {
    return {.count = spec.count(),
            .dtype = *operation.wire,
            .op = operation.op,
            .placement = Placement::kStaged};
  }
  const bool is_on_device = operation.memory == MemoryKind::kDevice;
  return is_on_device ? on_device(operation, spec, layout, context) : layout;
}

/// Makes a packer for a bfloat16 wire. Its state has no exponents to keep longer than the bucket.
std::shared_ptr<WirePacker> make_wire_packer(const BucketLayout& layout,
                                             const std::vector<Segment>& segments, int ranks,
                                             std::string name) {
  std::vector<std::size_t> tensors(segments.size());
  std::iota(tensors.begin(), tensors.end(), std::size_t{0});
  auto state = std::make_shared<WireState>(segments.size(), ranks);
  return std::make_shared<WirePacker>(layout, segments, std::move(tensors), std::move(state),
                                      std::move(name));
}

}  // namespace

BufferBinding::BufferBinding(const Operation& operation, const CollectiveSpec& spec, int rank) {
  const std::size_t tensors = std::max<std::size_t>(operation.tensors.size(), 1);
  const std::size_t numbers = StorageType::of(operation.dtype).per_element;
  std::vector<Place> ends(tensors, Place{.result = 0, .input = 0});
  const std::size_t parts = spec.parts_of_tensor();
  for (std::size_t i = 0; i < spec.size(); ++i) {
    CollectiveSpec::Part part = spec.part(i);
    if (!part.contributes(rank) && !part.receives(rank)) continue;
    // In a merged spec, a part has elements of all tensors.
    const std::size_t first = i / parts;
    const std::size_t end = spec.tensors() > 1 ? first + 1 : tensors;
    for (std::size_t tensor = first; tensor < end; ++tensor) {
      part.extent.count = operation.count_in(tensor, i % parts) * numbers;
      if (part.extent.count > 0) append_place(operation, tensor, part, rank, ends);
      part.extent.offset += part.extent.count;
    }
  }
}

/// Appends the place of `tensor`'s elements of `part`. `ends` has the end of each tensor so far.
void BufferBinding::append_place(const Operation& operation, std::size_t tensor,
                                 const CollectiveSpec::Part& part, int rank,
                                 std::vector<Place>& ends) {
  const DType dtype = StorageType::of(operation.dtype).dtype;
  const std::size_t bytes = part.extent.count * size_of(dtype);
  const bool contributes = part.contributes(rank);
  const bool receives = part.receives(rank);
  const bool has_inputs = operation.out_of_place || operation.sends_copy();
  const bool stays = contributes && !has_inputs && !reduces(operation.kind);
  Place& end = ends[tensor];
  Place place{
      .tensor = tensor, .bytes = bytes, .is_read = contributes, .is_written = receives && !stays};
  if (receives || !has_inputs) {
    place.result = end.result;
    *end.result += bytes;
  }
  if (contributes && has_inputs) {
    place.input = end.input;
    *end.input += bytes;
  }
  // On a device, a bounce buffer or the schedule makes the copies.
  const bool is_on_device = operation.memory == MemoryKind::kDevice;
  if (operation.sends_copy() && !is_on_device && !receives) {
    place.copy = copied_bytes_;
    copied_bytes_ += bytes;
  }
  const TensorBuffers buffers = tensor_of(operation, tensor);
  places_.push_back(place);
  segments_.push_back({.data = at<std::byte>(buffers.result, place.result),
                       .input = at<const std::byte>(buffers.input, place.input),
                       .dtype = dtype,
                       .count = part.extent.count,
                       .offset = part.extent.offset});
}

void BufferBinding::append(std::vector<BounceBuffer::Copy>& runs, const BounceBuffer::Copy& run) {
  if (!runs.empty()) {
    BounceBuffer::Copy& last = runs.back();
    if (last.offset + last.bytes == run.offset && last.device + last.bytes == run.device) {
      last.bytes += run.bytes;
      return;
    }
  }
  runs.push_back(run);
}

// A bounce buffer has one range for each buffer of each tensor:
//
//   result of tensor 0 | input of tensor 0 | result of tensor 1 | ...
void BufferBinding::bounce_in(CopyStreams& streams) {
  struct Offsets {
    std::size_t result = 0, input = 0;
  };
  std::vector<Offsets> buffers;  // by tensor: first sizes, then offsets
  for (const Place& place : places_) {
    if (buffers.size() <= place.tensor) buffers.resize(place.tensor + 1);
    Offsets& of = buffers[place.tensor];
    if (place.result) of.result = std::max(of.result, *place.result + place.bytes);
    if (place.input) of.input = std::max(of.input, *place.input + place.bytes);
  }
  std::size_t bytes = 0;
  const auto begin = [&](std::size_t& buffer) {
    const std::size_t size = std::exchange(buffer, bytes);
    bytes += (size + kBounceAlignment - 1) / kBounceAlignment * kBounceAlignment;
  };
  for (Offsets& of : buffers) {
    begin(of.result);
    begin(of.input);
  }
  bounce_buffer_ = std::make_shared<BounceBuffer>(streams, bytes);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const Offsets& of = buffers[place.tensor];
    if (place.result) place.result_in_bounce = of.result + *place.result;
    if (place.input) place.input_in_bounce = of.input + *place.input;
    segments_[i].data = place.result ? bounce_buffer_->data() + place.result_in_bounce : nullptr;
    segments_[i].input = place.input ? bounce_buffer_->data() + place.input_in_bounce : nullptr;
  }
}

void BufferBinding::begin_bounce(const Operation& operation) {
  down_.clear();
  up_.clear();
  for (const Place& place : places_) {
    const TensorBuffers buffers = tensor_of(operation, place.tensor);
    auto* const result = at<std::byte>(buffers.result, place.result);
    // The input is only read.
    auto* const input = at<std::byte>(const_cast<void*>(buffers.input), place.input);
    if (place.is_read && place.input) {
      append(down_, {.offset = place.input_in_bounce, .device = input, .bytes = place.bytes});
    } else if (place.is_read) {
      append(down_, {.offset = place.result_in_bounce, .device = result, .bytes = place.bytes});
    }
    const bool stays = place.input && input == result;
    if (place.is_written && !stays) {
      append(up_, {.offset = place.result_in_bounce, .device = result, .bytes = place.bytes});
    }
  }
  bounce_buffer_->begin(down_, up_, operation.ready.get());
}

void BufferBinding::bind(const Operation& operation) {
  if (set_scale_) set_scale_(operation.scales.before * factor_);
  if (bounce_buffer_) return begin_bounce(operation);
  if (copied_bytes_ > 0 && !copies_) copies_ = allocate_aligned(copied_bytes_);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const TensorBuffers buffers = tensor_of(operation, place.tensor);
    const auto* input = at<const std::byte>(buffers.input, place.input);
    if (place.copy) {
      std::byte* const copy = copies_.get() + *place.copy;
      std::memcpy(copy, input, place.bytes);
      input = copy;
    }
    packer_->rebind(i, at<std::byte>(buffers.result, place.result), input);
  }
}

bool is_in_arena(const Operation& operation, std::span<const std::byte> shared) {
  if (operation.sends_copy()) return false;
  const auto is_near = [&](const void* buffer) {
    const std::less_equal<const void*> at_most;
    return buffer == nullptr ||
           (at_most(shared.data(), buffer) && !at_most(shared.data() + shared.size(), buffer));
  };
  const auto are_near = [&](const TensorBuffers& tensor) {
    return is_near(tensor.input) && is_near(tensor.result);
  };
  return std::ranges::all_of(operation.tensors, are_near);
}

PlannedOperation plan_operation(const Operation& operation, bool in_arenas,
                                const PlanContext& context) {
  CollectiveSpec spec = operation.spec_of_tensors(context.grid.world_size());
  BucketLayout layout = layout_of(operation, spec, context);
  layout.in_arenas = in_arenas;
  if (!layout.is_in_tensors(MemoryKind::kDevice)) spec = merged(spec);
  const PlanInputs inputs = context.inputs();
  // The bucket of an all-reduce may be padded.
  const bool is_padded = layout.count != spec.count();
  const CollectiveSpec bucket_spec =
      is_padded ? CollectiveSpec::all_reduce(context.grid.world_size()) : spec;
  PlannedOperation planned{
      .bucket = plan_bucket(request_bucket(operation.name, bucket_spec, layout, inputs), inputs),
      .tensors = BufferBinding(operation, spec, context.transport.rank())};
  Binding& binding = planned.bucket.binding;
  if (!layout.is_on_device() && operation.memory == MemoryKind::kDevice) {
    planned.tensors.bounce_in(*context.copies);
    binding.bounce_buffer = planned.tensors.bounce_buffer();
  }
  const std::vector<Segment>& segments = planned.tensors.segments();
  if (layout.is_on_device()) binding.inputs = {nullptr};
  if (operation.wire) {
    auto packer = make_wire_packer(layout, segments, context.grid.world_size(), binding.name);
    binding.packer = packer;
    planned.tensors.set_packer(std::move(packer));
  } else if (layout.is_on_device() && layout.placement == Placement::kStaged) {
    auto packer = make_device_packer(
        context, planned.bucket.schedule, segments,
        {.out_of_place = operation.out_of_place, .unpack_scale = operation.scales.after});
    binding.stream_packer = packer;
    planned.tensors.set_scaling([packer](double scale) { packer->set_pack_scale(scale); }, 1);
    planned.tensors.set_packer(std::move(packer));
  } else {
    auto packer = std::make_shared<SegmentPacker>(layout.dtype, segments);
    binding.packer = packer;
    const int ranks = context.grid.world_size();
    binding.packs_contributions = scales_contributions(operation, ranks);
    binding.scale *= operation.scales.after;
    if (binding.packs_contributions) {
      planned.tensors.set_scaling([packer](double scale) { packer->set_scale(scale); },
                                  ranks == 1 ? operation.scales.after : 1.0);
    }
    planned.tensors.set_packer(std::move(packer));
  }
  return planned;
}

}  // namespace kolo
