#include "runtime/gradient_plan.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "fusion/segment_packer.h"

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

}  // namespace

double finishing_scale(ReduceOp op, const ProcessGrid& grid) {
  return op == ReduceOp::kAverage ? 1.0 / grid.world_size() : 1.0;
}

void plan_gradients(GradientGroup& group, BucketTable& buckets, Transport& transport,
                    const ProcessGrid& grid, std::size_t fusion_bytes,
                    const CompileOptions& options) {
  const auto& gradients = group.gradients();
  const Plan plan =
      plan_buckets(gradients, {.gradients = group.options(), .fusion_bytes = fusion_bytes});
  std::vector<BufferView> views(gradients.size());
  PlanSummary summary{.gradients = gradients.size(), .buckets = plan.buckets.size()};
  std::string identity = describe(gradients, group.options());
  std::size_t largest = 0;

  // Compiled before anything is allocated: an algorithm that does not fit leaves nothing behind.
  std::vector<Schedule> schedules;
  for (const PlannedBucket& bucket : plan.buckets) {
    schedules.push_back(compile_all_reduce(transport.rank(), bucket.layout, grid, options));
  }

  std::vector<BucketId> ids;
  for (std::size_t index = 0; index < plan.buckets.size(); ++index) {
    const PlannedBucket& bucket = plan.buckets[index];
    const bool staged = bucket.layout.placement == Placement::kStaged;
    const std::string algorithm = schedules[index].algorithm;
    identity +=
        fmt::format("{} {} {}\n", algorithm, bucket.layout.count, to_string(bucket.layout.dtype));
    if (bucket.layout.count * size_of(bucket.layout.dtype) >= largest) {
      largest = bucket.layout.count * size_of(bucket.layout.dtype);
      summary.algorithm = algorithm;
    }

    std::vector<Segment> segments;
    for (const PlannedSegment& planned : bucket.segments) {
      const GradientSpec& gradient = gradients[planned.gradient];
      BufferView& view = views[planned.gradient];
      view = {.data = gradient.data, .count = gradient.count(), .dtype = gradient.dtype};
      if (staged && !view.data) view.data = group.allocate(view.bytes());
      summary.bytes += view.bytes();
      segments.push_back(
          {.data = view.data, .dtype = view.dtype, .count = view.count, .offset = planned.offset});
    }
    Binding binding{.name = bucket_text(group, bucket, index),
                    .scale = finishing_scale(bucket.layout.op, grid)};
    if (staged) {
      binding.packer = std::make_shared<SegmentPacker>(bucket.layout.dtype, std::move(segments));
    }
    const std::string text = binding.name;
    ids.push_back(buckets.add(std::move(schedules[index]), std::move(binding), group, index, text));
    summary.wire_bytes += buckets[ids.back()].network_bytes;
    if (staged) continue;
    std::byte* memory =
        transport.memory(transport.rank()).data() + buckets[ids.back()].arena_offset;
    for (const PlannedSegment& planned : bucket.segments) {
      views[planned.gradient].data = memory + planned.offset * size_of(bucket.layout.dtype);
    }
  }
  summary.hash = XXH3_64bits(identity.data(), identity.size());
  group.planned(plan, std::move(views), std::move(ids), std::move(summary));
}

}  // namespace kolo
