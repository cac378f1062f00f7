#include "runtime/gradient_plan.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "comm/collective/chunking.h"
#include "fusion/segment_packer.h"
#include "runtime/gradient_compression.h"

namespace kolo {
namespace {

constexpr std::size_t kMostNamesQuoted = 5;

/// "bucket 2 of 'model' (fc1.weight, fc1.bias)".
std::string bucket_text(const GradientGroup& group, const PlannedBucket& bucket,
                        std::size_t index) {
  std::string names;
  for (std::size_t i = 0; i < bucket.segments.size(); ++i) {
    if (i == kMostNamesQuoted) {
      names += fmt::format(" and {} more", bucket.segments.size() - i);
      break;
    }
    names += (i == 0 ? "" : ", ") + group.gradients()[bucket.segments[i].gradient].name;
  }
  return fmt::format("bucket {} of '{}' ({})", index, group.name(), names);
}

/// Of all gradients in host memory, in the dtypes in which they travel.
std::size_t host_bytes(const GradientGroup& group) {
  std::size_t bytes = 0;
  for (const GradientSpec& gradient : group.gradients()) {
    if (gradient.memory != MemoryKind::kHost) continue;
    bytes += gradient.count() * size_of(bucket_dtype(gradient, group.options()));
  }
  return bytes;
}

Plan plan_with(const GradientGroup& group, const PlanContext& context) {
  return plan_buckets(group.gradients(),
                      {.gradients = group.options(),
                       .fusion_bytes = fusion_bytes(context, host_bytes(group)),
                       .device_fusion_bytes = context.options.device_fusion_bytes,
                       .device_padding_bytes = device_padding(context.grid, DType::kUInt8)});
}

}  // namespace

void plan_gradients(GradientGroup& group, const PlanContext& context) {
  const auto& gradients = group.gradients();
  const Plan plan = plan_with(group, context);
  std::vector<BufferView> views(gradients.size());
  PlanSummary summary{.gradients = gradients.size(),
                      .buckets = plan.buckets.size(),
                      .fusion_bytes = fusion_bytes(context, host_bytes(group)),
                      .compression = summarize_compression(gradients)};
  std::string identity = describe(gradients, group.options());
  std::size_t largest = 0;

  // Compiled before anything is allocated: an algorithm that does not fit leaves nothing behind.
  std::vector<Schedule> schedules;
  for (const PlannedBucket& bucket : plan.buckets) {
    schedules.push_back(compile_all_reduce(context.transport.rank(), bucket.layout, context.grid,
                                           compile_options(context, bucket.layout)));
  }
  if (context.lane != nullptr) group.attach(context.lane->device());

  std::vector<BucketId> ids;
  std::vector<const Event*> finished_events;
  for (std::size_t index = 0; index < plan.buckets.size(); ++index) {
    const PlannedBucket& bucket = plan.buckets[index];
    const bool staged = bucket.layout.placement != Placement::kInPlace;
    const bool on_device = bucket.layout.memory == MemoryKind::kDevice;
    const std::size_t bytes = bucket.layout.count * size_of(bucket.layout.dtype);
    identity += fmt::format("{} {} {}\n", schedules[index].algorithm, bucket.layout.count,
                            to_string(bucket.layout.dtype));
    if (bytes >= largest) {
      largest = bytes;
      summary.algorithm = schedules[index].algorithm;
      summary.reason = on_device ? explain_device_algorithm(bucket.layout, context.grid,
                                                            compile_options(context, bucket.layout))
                                 : std::string();
    }

    Binding binding{.name = bucket_text(group, bucket, index),
                    .scale = finishing_scale(bucket.layout.op, context.grid),
                    .unpack_stores = unpack_stores(bucket.layout, context)};
    std::vector<Segment> segments;
    for (const PlannedSegment& planned : bucket.segments) {
      const GradientSpec& gradient = gradients[planned.gradient];
      BufferView& view = views[planned.gradient];
      view = {.data = gradient.data,
              .count = gradient.count(),
              .dtype = gradient.dtype,
              .memory = gradient.memory};
      if (staged && !view.data) {
        view.data =
            on_device ? group.allocate_on_device(view.bytes()) : group.allocate(view.bytes());
      }
      summary.bytes += view.bytes();
      segments.push_back(
          {.data = view.data, .dtype = view.dtype, .count = view.count, .offset = planned.offset});
      if (on_device) binding.inputs.push_back(&group.ready_event(planned.gradient));
    }
    if (staged && on_device) {
      binding.stream_packer = make_device_packer(context, schedules[index], segments);
    } else if (staged) {
      binding.packer = std::make_shared<SegmentPacker>(bucket.layout.dtype, std::move(segments));
    }
    const std::string text = binding.name;
    const BucketId id =
        context.buckets.add(std::move(schedules[index]), std::move(binding), group, index, text);
    ids.push_back(id);
    finished_events.push_back(on_device ? &context.executor.finished_event(id) : nullptr);
    summary.wire_bytes += context.buckets[id].network_bytes;
    if (staged) continue;
    for (const PlannedSegment& planned : bucket.segments) {
      views[planned.gradient].data =
          context.executor.bucket_memory(id) + planned.offset * size_of(bucket.layout.dtype);
    }
  }
  summary.hash = XXH3_64bits(identity.data(), identity.size());
  group.planned(plan, std::move(views), std::move(ids), std::move(finished_events),
                std::move(summary));
}

}  // namespace kolo
