#include "comm/collective/compile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/collective/algorithm.h"
#include "comm/collective/parts.h"
#include "topology/node_shares.h"

namespace kolo {
namespace {

[[noreturn]] void fail(std::string what) {
  throw KoloError(Error{.code = ErrorCode::kConfig, .what = std::move(what)});
}

const std::map<std::string, AllReduce, std::less<>>& flat_algorithms() {
  static const std::map<std::string, AllReduce, std::less<>> algorithms = {
      {"direct", append_direct},
      {"halving_doubling", append_halving_doubling},
      {"ring", append_ring},
      {"tree", append_tree},
  };
  return algorithms;
}

AllReduce flat_algorithm(std::string_view name) {
  const auto it = flat_algorithms().find(name);
  if (it == flat_algorithms().end()) {
    fail(fmt::format("no algorithm '{}'; there are auto, {} and hierarchical:LOCAL,CROSS", name,
                     fmt::join(algorithm_names(), ", ")));
  }
  return it->second;
}

/// "hierarchical:LOCAL,CROSS" taken apart.
struct Hierarchy {
  const ScatterGather* local;
  AllReduce cross;
  std::string local_name, cross_name;
};

constexpr std::string_view kHierarchical = "hierarchical";
constexpr std::string_view kFlat = "flat";
constexpr std::string_view kDirectName = "direct";
constexpr std::string_view kNativeName = "native";
constexpr std::string_view kRingName = "ring";

Hierarchy parse_hierarchy(std::string_view name) {
  const std::string_view parts = name.substr(std::min(name.size(), kHierarchical.size() + 1));
  const std::size_t comma = parts.find(',');
  if (comma == std::string_view::npos) {
    fail(fmt::format("'{}' is not of the form hierarchical:LOCAL,CROSS", name));
  }
  const std::string_view cross = parts.substr(comma + 1);
  if (!flat_algorithms().contains(cross)) {
    fail(fmt::format("CROSS of '{}' must be direct, halving_doubling, ring or tree", name));
  }
  Hierarchy hierarchy{.local = nullptr,
                      .cross = flat_algorithm(cross),
                      .local_name = std::string(parts.substr(0, comma)),
                      .cross_name = std::string(cross)};
  if (hierarchy.local_name == "direct") hierarchy.local = &kSharedDirect;
  if (hierarchy.local_name == "native") hierarchy.local = &kNative;
  if (hierarchy.local_name == "ring") hierarchy.local = &kRing;
  if (!hierarchy.local) fail(fmt::format("LOCAL of '{}' must be direct, native or ring", name));
  return hierarchy;
}

std::size_t bytes_of(const BucketLayout& layout) { return layout.count * size_of(layout.dtype); }

bool is_on_device(const BucketLayout& layout) { return layout.memory == MemoryKind::kDevice; }

static_assert(kLeastPartBytes == kWireAlignment);

/// Whether partial sums of the bucket would be rounded.
bool rounds(const BucketLayout& layout) {
  return is_16bit_float(layout.dtype) && layout.op != ReduceOp::kMin && layout.op != ReduceOp::kMax;
}

LinkCosts link_costs(const CompileOptions& options) {
  LinkCosts costs = options.link_costs;
  if (options.network_takes_device_memory) {
    costs.staging = {.latency_us = 0, .bytes_per_us = std::numeric_limits<double>::infinity()};
  }
  return costs;
}

DeviceLimits device_limits(const BucketLayout& layout, const CompileOptions& options) {
  return {.reproducible = rounds(layout),
          .native_spans_nodes = options.native_spans_nodes,
          .unit_bytes = options.device_chunk_bytes};
}

/// Errors: KoloError(kConfig) if the algorithm needs memory of the other kind, or a group of the
/// device's library that there is not.
void check_memory(const BucketLayout& layout, const CompileOptions& options,
                  std::string_view name) {
  const bool is_native = name == kNativeName || name.starts_with("hierarchical:native,");
  if (is_native && !is_on_device(layout)) {
    fail(fmt::format(
        "{} is for device memory; host memory has direct and hierarchical:direct,CROSS", name));
  }
  if (name == kFlat && is_on_device(layout)) {
    fail("flat is for host memory, which ranks of a node share; device memory has native");
  }
  if (name == kNativeName && !options.native_spans_nodes) {
    fail("native needs the device's own library to reach all ranks; use hierarchical:native,CROSS");
  }
  if (is_on_device(layout) && name.starts_with("hierarchical:direct,")) {
    fail(
        fmt::format("{} reads memory of other ranks, which devices do not share; use "
                    "hierarchical:native,CROSS",
                    name));
  }
}

bool sums_in_one_place(std::string_view algorithm) {
  return algorithm == kFlat || algorithm == kDirectName ||
         algorithm == "hierarchical:direct,direct" || algorithm == kNativeName ||
         algorithm == "hierarchical:native,direct";
}

/// Whether the bucket goes through a window of staging slots.
bool is_windowed(const BucketLayout& layout, const ProcessGrid& grid, std::string_view name) {
  return name == kDirectName && grid.num_nodes() == 1 && !is_on_device(layout) &&
         layout.placement != Placement::kInPlace;
}

/// Whether all of the bucket moves at once: nothing is packed or sent, so there is nothing to
/// overlap.
bool is_in_one_piece(const BucketLayout& layout, const ProcessGrid& grid, std::string_view name) {
  return name == kFlat ||
         (name == kDirectName && grid.num_nodes() == 1 && layout.placement == Placement::kInPlace);
}

/// The least number of chunks in a window: while one is on its way, another is packed or summed.
constexpr std::size_t kChunksInWindow = 2;

bool has_window(const BucketLayout& layout, const ProcessGrid& grid,
                const CompileOptions& options) {
  return options.network_window > 0 && grid.num_nodes() > 1 && !is_on_device(layout);
}

std::size_t host_chunk_bytes(const BucketLayout& layout, const ProcessGrid& grid,
                             const CompileOptions& options) {
  if (!has_window(layout, grid, options)) return options.chunk_bytes;
  return std::min(options.chunk_bytes, options.network_window / kChunksInWindow);
}

/// Chunks that fit the window.
std::size_t window_width(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options) {
  if (!has_window(layout, grid, options)) return 0;
  const std::size_t chunk_bytes = std::max(kWireAlignment, host_chunk_bytes(layout, grid, options));
  return std::max(kChunksInWindow, options.network_window / chunk_bytes);
}

/// What one slot of a windowed bucket holds.
std::size_t slot_bytes(const BucketLayout& layout, const CompileOptions& options) {
  const std::size_t bytes = bytes_of(layout);
  const std::size_t slot =
      bytes <= options.cached_bytes ? options.cached_slot_bytes : options.slot_bytes;
  return std::min({options.chunk_bytes, options.slot_bytes, slot});
}

/// Pieces of the bucket that follow each other.
std::vector<Extent> chunks_of(const BucketLayout& layout, const ProcessGrid& grid,
                              const CompileOptions& options, std::string_view name) {
  if (is_on_device(layout)) {
    return device_chunks(layout.count, device_padding(grid, layout.dtype), layout.dtype,
                         options.device_chunk_bytes);
  }
  const Extent whole{0, layout.count};
  if (is_in_one_piece(layout, grid, name)) return {whole};
  const std::size_t chunk_bytes = is_windowed(layout, grid, name)
                                      ? slot_bytes(layout, options)
                                      : host_chunk_bytes(layout, grid, options);
  std::vector<Extent> chunks(chunk_count(whole, layout.dtype, chunk_bytes));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    chunks[i] = part_of(whole, chunks.size(), i, layout.dtype);
  }
  return chunks;
}

/// Which sums each node makes, for an algorithm in which that is ours to say. A host bucket's
/// sums are made in group order wherever they are made, so no bit follows from shares.
std::vector<double> shares_between_nodes(const BucketLayout& layout, const ProcessGrid& grid,
                                         const CompileOptions& options, std::string_view name) {
  const bool one_rank_each = grid.num_nodes() == grid.world_size();
  const bool may_differ = !is_on_device(layout) &&
                          (name.starts_with(kHierarchical) ? name.ends_with(kDirectName)
                                                           : name == kDirectName && one_rank_each);
  return may_differ ? node_shares(options.link_costs, grid.num_nodes()) : std::vector<double>{};
}

ScheduleBuilder make_builder(int rank, std::string name, const BucketLayout& layout,
                             const ProcessGrid& grid, const CompileOptions& options) {
  // No message is longer than the bucket, so a ring that holds it twice is never full.
  const std::size_t staging =
      std::min(options.staging_bytes / size_of(layout.dtype), 2 * layout.count);
  return {rank,
          std::move(name),
          layout,
          {.are_direct = options.network_takes_device_memory, .staging_count = staging},
          window_width(layout, grid, options)};
}

std::vector<int> all_ranks(const ProcessGrid& grid) {
  std::vector<int> ranks(static_cast<std::size_t>(grid.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void append_host_stage(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid,
                       const std::string& name) {
  if (name == kFlat) return append_flat(builder, stage, grid);
  const bool in_place = builder.layout().placement == Placement::kInPlace;
  if (name == kDirectName && grid.num_nodes() == 1 && in_place) {
    return append_shared_direct(builder, stage);
  }
  // Packed part by part, in the order in which they are sent: peers start before all is packed, and
  // not all ranks begin with the same owner.
  const std::size_t own = stage.position(builder.rank());
  const std::size_t stride = name == kRingName ? stage.size() - 1 : 1;
  for (std::size_t i = 1; i <= stage.size(); ++i) {
    const std::size_t owner = (own + i * stride) % stage.size();
    builder.load(part_at(builder, stage, builder.rank(), owner));
  }
  if (name.starts_with(kHierarchical)) {
    const Hierarchy hierarchy = parse_hierarchy(name);
    append_hierarchical(builder, stage, grid, *hierarchy.local, hierarchy.cross);
  } else {
    flat_algorithm(name)(builder, stage);
  }
}

void append_host_stages(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                        const ProcessGrid& grid, const CompileOptions& options,
                        const std::string& name) {
  if (is_windowed(builder.layout(), grid, name)) {
    return append_windowed_direct(builder, stages, options.window);
  }
  for (const Stage& stage : stages) {
    builder.next_chunk();
    append_host_stage(builder, stage, grid, name);
  }
}

void append_device_stages(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                          const ProcessGrid& grid, const std::string& name) {
  // A launch packs many tensors at once, and packing a chunk overlaps the collectives of the last.
  for (const Stage& stage : stages) {
    builder.load(builder.bucket(stage.extent.offset, stage.extent.count));
  }
  if (name.starts_with(kHierarchical)) {
    const Hierarchy hierarchy = parse_hierarchy(name);
    append_pipelined_hierarchical(builder, stages, grid, *hierarchy.local, hierarchy.cross);
    return;
  }
  const AllReduce append = name == kNativeName ? append_native : flat_algorithm(name);
  for (const Stage& stage : stages) append(builder, stage);
}

Schedule finished(ScheduleBuilder builder, const ProcessGrid& grid, const CompileOptions& options) {
  Schedule schedule = std::move(builder).build();
  const std::size_t bytes = bytes_of(schedule.layout);
  schedule.eager =
      !is_on_device(schedule.layout) && (grid.num_nodes() == 1 || bytes <= options.eager_bytes);
  return schedule;
}

}  // namespace

const std::vector<std::string>& algorithm_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const auto& [name, append] : flat_algorithms()) result.push_back(name);
    result.emplace_back(kFlat);
    result.emplace_back(kHierarchical);
    result.emplace_back(kNativeName);
    return result;
  }();
  return names;
}

HostBucket host_bucket(const BucketLayout& layout) {
  Packing packing = Packing::kNone;
  if (layout.placement == Placement::kUser) packing = Packing::kUser;
  if (layout.placement == Placement::kStaged) packing = Packing::kCast;
  return {.bytes = bytes_of(layout), .reproducible = rounds(layout), .packing = packing};
}

std::string resolve_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                              const CompileOptions& options) {
  const std::size_t bytes = bytes_of(layout);
  const CostModel model(grid, link_costs(options));
  const std::string local = is_on_device(layout) ? "hierarchical:native," : "hierarchical:direct,";
  std::string name = options.algorithm;
  if (name == "auto") {
    name = is_on_device(layout) ? model.choose_device(bytes, device_limits(layout, options))
                                : model.choose(host_bucket(layout));
  } else if (name == kHierarchical) {
    const auto predict_us = [&](const std::string& candidate) {
      return is_on_device(layout)
                 ? model.native_hierarchical_us(bytes, candidate, options.device_chunk_bytes)
                 : model.hierarchical_us(bytes, candidate);
    };
    std::string best = "direct";
    for (const auto& [cross, append] : flat_algorithms()) {
      if (!rounds(layout) && predict_us(cross) < predict_us(best)) best = cross;
    }
    name = local + best;
  }
  if (name.starts_with(kHierarchical)) {
    parse_hierarchy(name);
  } else if (name != kNativeName && name != kFlat) {
    flat_algorithm(name);
  }
  check_memory(layout, options, name);
  if (rounds(layout) && !sums_in_one_place(name)) {
    fail(fmt::format(
        "{} would round {} partial sums at every hop; with 16-bit gradients or wire use "
        "{} or {}direct",
        name, to_string(layout.dtype), is_on_device(layout) ? kNativeName : "direct", local));
  }
  return name;
}

std::string explain_device_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                                     const CompileOptions& options) {
  return CostModel(grid, link_costs(options))
      .explain_device(resolve_algorithm(layout, grid, options), bytes_of(layout),
                      device_limits(layout, options));
}

Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options) {
  const std::string name = resolve_algorithm(layout, grid, options);
  const std::vector<double> shares = shares_between_nodes(layout, grid, options, name);
  std::vector<Stage> stages;
  for (const Extent& chunk : chunks_of(layout, grid, options, name)) {
    stages.push_back({.group = all_ranks(grid), .extent = chunk, .node_shares = shares});
  }
  ScheduleBuilder builder = make_builder(rank, name, layout, grid, options);
  if (is_on_device(layout)) {
    append_device_stages(builder, stages, grid, name);
  } else {
    append_host_stages(builder, stages, grid, options, name);
  }
  return finished(std::move(builder), grid, options);
}

Schedule compile_broadcast(int rank, int root, const BucketLayout& layout, const ProcessGrid& grid,
                           const CompileOptions& options) {
  const auto append = is_on_device(layout) ? append_device_broadcast : append_broadcast;
  constexpr const char* kName = "broadcast";
  ScheduleBuilder builder = make_builder(rank, kName, layout, grid, options);
  for (const Extent& chunk : chunks_of(layout, grid, options, kName)) {
    builder.next_chunk();
    append(builder, chunk, root, grid);
  }
  return finished(std::move(builder), grid, options);
}

}  // namespace kolo
