#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "comm/algorithms/all_reduce/cost_model.h"
#include "comm/algorithms/host/collective_price.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

// One collective of the device's native library. Nothing is packed, except for sums in a bucket.
// Parts may have any lengths; several tensors take one launch. The library chooses the order of
// summation, which is the same in every run.
//
//   a sum for all                   all-reduce                        native
//   sums into one place each        reduce, reduce-scatter            reduce_parts
//   one contributor, all receive    broadcast, all-gather             gather_parts
//   one contributor, one receiver   gather, scatter, all-to-all       exchange_parts

/// Returns the extents of the parts of a tensor, by rank; `rank_of(part)` is the part's rank.
template <typename RankOf>
std::vector<Extent> extents(const CollectiveSpec& spec, std::size_t tensor, int ranks,
                            RankOf rank_of) {
  std::vector<Extent> all(static_cast<std::size_t>(ranks));
  const std::size_t first = tensor * spec.parts_of_tensor();
  for (std::size_t i = first; i < first + spec.parts_of_tensor(); ++i) {
    const CollectiveSpec::Part part = spec.part(i);
    all[static_cast<std::size_t>(rank_of(part))] = part.extent;
  }
  std::size_t end = spec.part(first).extent.offset;
  for (Extent& each : all) {
    if (each.count == 0) each.offset = end;
    end = each.end();
  }
  return all;
}

void append_sums(ScheduleBuilder& builder, const CollectiveSpec& spec, int ranks) {
  std::vector<Range> parts, targets;
  for (std::size_t i = 0; i < spec.tensors(); ++i) {
    const std::vector<Extent> each = extents(
        spec, i, ranks, [](const CollectiveSpec::Part& of) { return of.receivers.front(); });
    for (const Extent& part : each) parts.push_back(builder.input(part.offset, part.count));
    const Extent& mine = each[static_cast<std::size_t>(builder.rank())];
    targets.push_back(builder.home(mine.offset, mine.count));
  }
  builder.reduce_parts(std::move(targets), std::move(parts), ranks > 1);
}

void append_packed_sums(ScheduleBuilder& builder, const CollectiveSpec& spec, int ranks) {
  builder.load(builder.bucket(0, builder.layout().count));
  const std::vector<Extent> each =
      extents(spec, 0, ranks, [](const CollectiveSpec::Part& of) { return of.receivers.front(); });
  std::vector<Range> parts;
  for (const Extent& part : each) parts.push_back(builder.bucket(part.offset, part.count));
  const Range mine = parts[static_cast<std::size_t>(builder.rank())];
  if (ranks > 1) builder.reduce_parts({mine}, std::move(parts), true);
  builder.deliver(mine, Sink::kUser);
}

void append_copies(ScheduleBuilder& builder, const CollectiveSpec& spec, int ranks) {
  std::vector<Range> parts, sources;
  for (std::size_t i = 0; i < spec.tensors(); ++i) {
    const std::vector<Extent> each = extents(
        spec, i, ranks, [](const CollectiveSpec::Part& of) { return of.contributors.front(); });
    for (const Extent& part : each) parts.push_back(builder.home(part.offset, part.count));
    const Extent& mine = each[static_cast<std::size_t>(builder.rank())];
    sources.push_back(builder.input(mine.offset, mine.count));
  }
  builder.gather_parts(std::move(sources), std::move(parts));
}

Range copy_of(ScheduleBuilder& builder, const Range& source) {
  const Range copy = builder.scratch(source.count);
  builder.move(copy, source);
  return copy;
}

void append_exchange(ScheduleBuilder& builder, const CollectiveSpec& spec, int ranks) {
  const bool replaces_inputs = builder.layout().replaces_inputs;
  const auto size = static_cast<std::size_t>(ranks);
  // Entries are by tensor and rank. They stay empty for data that a rank would send to itself in
  // place.
  std::vector<Range> given(spec.tensors() * size, Range{builder.rank(), Region::kScratch});
  std::vector<Range> got = given;
  for (std::size_t i = 0; i < spec.tensors(); ++i) {
    for (std::size_t each = 0; each < spec.parts_of_tensor(); ++each) {
      const CollectiveSpec::Part part = spec.part(i * spec.parts_of_tensor() + each);
      const int from = part.contributors.front();
      const int to = part.receivers.front();
      if (from == to && replaces_inputs) continue;  // already in place
      if (from == builder.rank()) {
        const Range source = builder.input(part.extent.offset, part.extent.count);
        given[i * size + static_cast<std::size_t>(to)] =
            replaces_inputs ? copy_of(builder, source) : source;
      }
      if (to == builder.rank()) {
        got[i * size + static_cast<std::size_t>(from)] =
            builder.home(part.extent.offset, part.extent.count);
      }
    }
  }
  builder.exchange_parts(std::move(given), std::move(got));
}

bool is_packed(const BucketLayout& layout) { return layout.placement == Placement::kStaged; }

bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  if (layout.is_on_device() && is_packed(layout)) {
    return spec.tensors() == 1 && reduces(spec.kind) && spec.kind != CollectiveKind::kAllReduce;
  }
  const bool is_one_call = spec.tensors() == 1 || spec.kind != CollectiveKind::kAllReduce;
  return layout.is_in_tensors(MemoryKind::kDevice) && has_elements(spec.kind) && is_one_call;
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  const CollectiveSpec& spec = context.spec;
  const int ranks = context.grid.world_size();
  if (is_packed(builder.layout())) return append_packed_sums(builder, spec, ranks);
  builder.forgo_bucket();
  if (spec.count() == 0) return;
  if (spec.kind == CollectiveKind::kAllReduce) {
    const std::size_t count = builder.layout().count;
    return builder.native(NativeOp::kAllReduce, NativeGroup::kWorld, builder.home(0, count),
                          builder.input(0, count), ranks > 1);
  }
  if (reduces(spec.kind)) return append_sums(builder, spec, ranks);
  if (is_to_all(spec.kind)) return append_copies(builder, spec, ranks);
  append_exchange(builder, spec, ranks);
}

/// Fraction of all bytes that the busiest of `places` ranks or nodes sends or receives.
double busiest_share(CollectiveKind kind, double places) {
  if (kind == CollectiveKind::kAllReduce) return 2 * (places - 1) / places;
  if (has_pairs(kind)) return (places - 1) / (places * places);
  if (has_parts(kind)) return (places - 1) / places;
  return places > 1 ? 1 : 0;
}

/// Number of consecutive messages between nodes. The library sums and copies along rings.
double hops(CollectiveKind kind, double nodes) {
  const bool is_exchange = !reduces(kind) && !is_to_all(kind);
  return is_exchange ? std::min(nodes - 1, 1.0) : nodes - 1;
}

// The library pipelines a call, so a call costs its latencies plus the time of the busiest link.
double predict_us(const HostLinks& links, const CollectiveSize& size,
                  const CompileOptions& options) {
  const CollectivePrice price(links, size);
  const LinkCosts& costs = links.costs();
  const double nodes = price.nodes();
  if (!options.native_spans_nodes) return std::numeric_limits<double>::infinity();
  if (size.kind == CollectiveKind::kAllReduce) {
    // The same price as for a bucket.
    const auto bytes = static_cast<std::size_t>(size.bytes);
    return CostModel(links.grid(), costs).device_price(find_all_reduce("native"), bytes).us;
  }
  const double inside =
      size.bytes * busiest_share(size.kind, price.ranks()) / costs.device.bytes_per_us;
  const double crossed =
      size.bytes * busiest_share(size.kind, nodes) / costs.native_network.bytes_per_us;
  return costs.bucket_us + costs.device.latency_us +
         hops(size.kind, nodes) * costs.native_network.latency_us + std::max(inside, crossed);
}

constinit const CollectiveAlgorithm kNative(
    {.name = "native", .serves = serves, .append = append, .predict_us = predict_us});

}  // namespace

constinit const Algorithm& algorithms::native = kNative;

}  // namespace kolo
