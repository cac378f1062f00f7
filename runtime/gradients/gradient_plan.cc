#include "runtime/gradients/gradient_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "comm/algorithms/chunking.h"
#include "comm/base/text.h"
#include "fusion/gradient_checks.h"
#include "fusion/pack_kernels.h"
#include "fusion/wire_packer.h"
#include "runtime/gradients/gradient_compression.h"

namespace kolo {
namespace {

/// Formats a bucket for errors: "bucket 2 of 'model' ('fc1.weight', 'fc1.bias')".
std::string bucket_text(const GradientSetState& set, const PlannedBucket& bucket,
                        std::size_t index) {
  std::vector<std::string_view> names;
  for (const auto& segment : bucket.segments) {
    names.push_back(set.travelling()[segment.gradient].name);
  }
  return fmt::format("bucket {} of '{}' ({})", index, set.name(), quoted(names));
}

/// Returns the expected order of readiness: last registered gradient first, then weights.
std::vector<std::size_t> expected_order(const GradientSetState& set) {
  std::vector<std::size_t> order;
  for (std::size_t i = set.size(); i-- > 0;) order.push_back(i);
  for (std::size_t i = set.size(); i < set.gradients().size(); ++i) order.push_back(i);
  return order;
}

/// Returns the target size of a set's buckets in this kind of memory, in bytes.
std::size_t fusion_bytes_of(const GradientSetState& set, const PlanContext& context,
                            MemoryKind memory) {
  std::size_t bytes = 0;  // in the dtypes in which gradients are sent
  bool in_place = true;
  for (const GradientSpec& gradient : set.travelling()) {
    if (gradient.memory != memory || !gradient.compression.empty()) continue;
    const DType dtype = bucket_dtype(gradient, set.options());
    bytes += gradient.count() * size_of(dtype);
    in_place = in_place && gradient.data == nullptr && gradient.element_type() == dtype;
  }
  return fusion_bytes(context, memory, bytes, in_place ? Placement::kInPlace : Placement::kStaged);
}

PlannerOptions planner_options(const GradientSetState& set, const PlanContext& context) {
  return {.gradients = set.options(),
          .fusion_bytes = fusion_bytes_of(set, context, MemoryKind::kHost),
          .device_fusion_bytes = fusion_bytes_of(set, context, MemoryKind::kDevice),
          .device_padding_bytes = device_padding(context.grid, DType::kUInt8),
          .order = expected_order(set)};
}

/// Returns a hash of the gradients in each bucket, in their order.
std::uint64_t fingerprint(const Plan& plan) {
  std::vector<std::uint64_t> words;
  for (const PlannedBucket& bucket : plan.buckets) {
    words.push_back(bucket.segments.size());
    for (const PlannedSegment& segment : bucket.segments) words.push_back(segment.gradient);
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(words[0]));
}

/// Assigns permanent memory to gradients in host memory: the caller's, the arena's or the set's.
/// Dense gradients in device memory get memory when their buckets are added.
void place_gradients(GradientSetState& set, const PlanContext& context) {
  const auto& gradients = set.travelling();
  const ArenaPlaces places = place_in_arena(gradients, planner_options(set, context));
  std::optional<std::size_t> region;
  // An empty gradient has a place, too, in a region that may have no other.
  const auto has_place = [](const auto& offset) { return offset.has_value(); };
  if (std::ranges::any_of(places.offset_of, has_place)) {
    region = context.buckets.reserve(places.bytes);
  }
  std::vector<BufferView> views;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const GradientSpec& gradient = gradients[i];
    BufferView view(static_cast<void*>(gradient.data), gradient.count(), gradient.element_type(),
                    gradient.memory);
    if (places.offset_of[i]) {
      const auto arena = context.transport.memory(context.transport.rank());
      view.data = arena.data() + *region + *places.offset_of[i];
    } else if (!view.data && view.memory == MemoryKind::kHost) {
      view.data = set.allocate(view.bytes());
    } else if (!view.data && !gradient.compression.empty()) {
      view.data = set.allocate_on_device(view.bytes());
    }
    views.push_back(view);
  }
  set.placed(std::move(views), places.offset_of, region, context.grid.world_size());
}

void plan_compressed_set(GradientSetState& set, const PlanContext& context, std::size_t step = 0) {
  std::vector<const Event*> ready;
  for (std::size_t i = 0; i < set.gradients().size(); ++i) {
    const bool on_device = set.gradients()[i].memory == MemoryKind::kDevice;
    ready.push_back(on_device ? &set.ready_event(i) : nullptr);
  }
  set.compressed().plan(set.travelling(), set.views(), ready, set.options().op, set, context, step);
}

std::shared_ptr<WirePacker> make_wire_packer(const PlannedBucket& bucket,
                                             std::vector<Segment> segments,
                                             std::shared_ptr<WireState> state, std::string name) {
  std::vector<std::size_t> gradients;
  for (const PlannedSegment& planned : bucket.segments) gradients.push_back(planned.gradient);
  return std::make_shared<WirePacker>(bucket.layout, std::move(segments), std::move(gradients),
                                      std::move(state), std::move(name));
}

/// Adds the buckets of a draft, and gives the plan to the set.
void install(GradientSetState& set, const PlanContext& context, GradientDraft draft) {
  const auto& gradients = set.travelling();
  PlanSummary summary{.gradients = set.size(),
                      .buckets = draft.plan.buckets.size(),
                      .fusion_bytes = draft.fusion_bytes,
                      .compression = summarize_compression(gradients)};
  std::string identity =
      fmt::format("{}{:x}\n", describe(gradients, set.options()), fingerprint(draft.plan));
  std::size_t largest = 0;
  std::vector<BucketId> ids;
  std::vector<const Event*> finished_events;
  for (std::size_t index = 0; index < draft.plan.buckets.size(); ++index) {
    const PlannedBucket& bucket = draft.plan.buckets[index];
    BucketPlan& plan = draft.buckets[index];
    Binding& binding = plan.binding;
    const bool staged = bucket.layout.placement != Placement::kInPlace;
    const bool on_device = bucket.layout.is_on_device();
    const std::size_t bytes = bucket.layout.bytes();
    identity += fmt::format("{} {} {}\n", plan.schedule.algorithm, bucket.layout.count,
                            to_string(bucket.layout.dtype));
    if (bytes >= largest) {
      largest = bytes;
      summary.algorithm = plan.schedule.algorithm;
      summary.reason = plan.reason;
    }

    std::vector<Segment> segments;
    for (const PlannedSegment& planned : bucket.segments) {
      const BufferView& view = set.view(planned.gradient);
      if (staged && !view.data) {
        set.set_data(planned.gradient, set.allocate_on_device(view.bytes()));
      }
      if (planned.gradient < set.size()) summary.bytes += view.bytes();
      segments.push_back(
          {.data = view.data, .dtype = view.dtype, .count = view.count, .offset = planned.offset});
      if (on_device) binding.inputs.push_back(&set.ready_event(planned.gradient));
    }
    if (staged && on_device) {
      binding.stream_packer = make_device_packer(context, plan.schedule, segments);
    } else if (bucket.layout.placement == Placement::kStaged &&
               is_16bit_float(bucket.layout.dtype)) {
      binding.packer = make_wire_packer(bucket, std::move(segments),
                                        set.wire_state(context.grid.world_size()), binding.name);
    } else if (staged) {
      binding.packer = std::make_shared<SegmentPacker>(bucket.layout.dtype, std::move(segments));
    }
    const std::string text = binding.name;
    const auto place = staged ? std::nullopt : set.arena_place(bucket.segments.front().gradient);
    const BucketId id = context.buckets.add(std::move(plan), set, index, text, place);
    ids.push_back(id);
    finished_events.push_back(on_device ? &context.executor.finished_event(id) : nullptr);
    summary.wire_bytes += context.buckets[id].network_bytes;
    if (staged || !on_device) continue;
    for (const PlannedSegment& planned : bucket.segments) {
      set.set_data(planned.gradient, context.executor.bucket_memory(id) +
                                         planned.offset * size_of(bucket.layout.dtype));
    }
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (set.compressed().has(i)) summary.bytes += set.view(i).bytes();
  }
  summary.buckets += set.compressed().size();
  identity += set.compressed().describe();
  summary.hash = XXH3_64bits(identity.data(), identity.size());
  set.planned(std::move(draft.plan), std::move(ids), std::move(finished_events),
              std::move(summary));
}

}  // namespace

GradientDraft draft_gradients(const GradientSetState& set, const PlanContext& context) {
  const auto is_on_device = [](const GradientSpec& gradient) {
    return gradient.memory == MemoryKind::kDevice;
  };
  const bool all_on_device = std::ranges::all_of(set.gradients(), is_on_device);
  const MemoryKind memory = all_on_device ? MemoryKind::kDevice : MemoryKind::kHost;
  GradientDraft draft{.plan = plan_buckets(set.travelling(), planner_options(set, context)),
                      .buckets = {},
                      .fusion_bytes = fusion_bytes_of(set, context, memory)};
  const PlanInputs inputs = context.inputs();
  if (std::ranges::any_of(set.gradients(), is_on_device)) {
    compile_options(MemoryKind::kDevice, inputs);  // throws without a device
  }
  for (std::size_t index = 0; index < draft.plan.buckets.size(); ++index) {
    const PlannedBucket& bucket = draft.plan.buckets[index];
    draft.buckets.push_back(plan_bucket(
        request_bucket(bucket_text(set, bucket, index),
                       CollectiveSpec::all_reduce(inputs.grid.world_size()), bucket.layout, inputs),
        inputs));
  }
  return draft;
}

std::string describe(const GradientDraft& draft) {
  std::string text;
  for (const BucketPlan& bucket : draft.buckets) {
    const BucketLayout& layout = bucket.schedule.layout;
    text += fmt::format("{}: {} of {} by {}, in chunks of {} bytes\n", bucket.binding.name,
                        layout.count, to_string(layout.dtype), bucket.schedule.algorithm,
                        bucket.chunk_bytes);
  }
  return text;
}

void plan_gradients(GradientSetState& set, const PlanContext& context, GradientDraft draft) {
  if (context.streams != nullptr) set.attach(context.streams->device());
  place_gradients(set, context);
  plan_compressed_set(set, context);
  install(set, context, std::move(draft));
  set.compressed().placed(set.views());
}

void replan_gradients(GradientSetState& set, const PlanContext& context) {
  const std::vector<BucketId> former = set.buckets();
  GradientDraft draft = draft_gradients(set, context);
  plan_compressed_set(set, context, kMeasuredIterations);
  install(set, context, std::move(draft));
  for (BucketId id : former) context.buckets.remove(id);
}

void remove_gradients(const GradientSetState& set, BucketTable& buckets) {
  for (BucketId id : set.buckets()) buckets.remove(id);
  for (BucketId id : set.compressed().ids()) buckets.remove(id);
  if (set.arena_region()) buckets.release(*set.arena_region());
}

}  // namespace kolo
