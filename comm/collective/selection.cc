#include "comm/collective/selection.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

[[noreturn]] void refuse_choice(std::string what) {
  throw KoloError(Error{.code = ErrorCode::kConfig, .what = std::move(what)});
}

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

/// The algorithms that fit, for errors: "direct; flat; hierarchical:direct,direct".
template <typename Predicate>
std::string alternatives(const BucketLayout& layout, Predicate fits) {
  std::vector<std::string> names;
  for (const Algorithm& each : algorithms_for(layout.memory)) {
    if (fits(each)) names.push_back(each.to_string());
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

void check_fits(const Algorithm& algorithm, const BucketLayout& layout,
                const CompileOptions& options) {
  if (!algorithm.takes(layout.memory)) {
    refuse_choice(fmt::format("algorithm {} does not take {} memory; there are {}",
                              algorithm.to_string(), layout.is_on_device() ? "device" : "host",
                              alternatives(layout, [](const Algorithm&) { return true; })));
  }
  if (algorithm.needs_native() && !options.native_spans_nodes) {
    refuse_choice(fmt::format(
        "algorithm {} needs the device's own library to reach all ranks; there are {}",
        algorithm.to_string(),
        alternatives(layout, [](const Algorithm& each) { return !each.needs_native(); })));
  }
  if (rounds(layout) && !algorithm.sums_in_one_place()) {
    refuse_choice(fmt::format(
        "algorithm {} would round {} partial sums at every hop; with 16-bit gradients or wire use "
        "one of {}",
        algorithm.to_string(), to_string(layout.dtype),
        alternatives(layout, [](const Algorithm& each) { return each.sums_in_one_place(); })));
  }
}

Algorithm cheapest_hierarchy(const BucketLayout& layout, const CostModel& model,
                             const CompileOptions& options) {
  std::vector<Algorithm> candidates = hierarchies_for(layout.memory);
  if (rounds(layout)) {
    std::erase_if(candidates, [](const Algorithm& each) { return !each.sums_in_one_place(); });
  }
  return *std::ranges::min_element(candidates, {}, [&](const Algorithm& each) {
    return layout.is_on_device()
               ? model.predict_device_us(each, layout.bytes(), options.device_chunk_bytes)
               : model.predict_us(each, {.bytes = layout.bytes()});
  });
}

}  // namespace

HostBucket host_bucket(const BucketLayout& layout) {
  Packing packing = Packing::kNone;
  if (layout.placement == Placement::kUser) packing = Packing::kUser;
  if (layout.placement == Placement::kStaged) packing = Packing::kCast;
  return {.bytes = layout.bytes(), .reproducible = rounds(layout), .packing = packing};
}

Algorithm resolve_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options) {
  const CostModel model(grid, link_costs(options));
  if (options.algorithm.is_auto()) {
    return layout.is_on_device()
               ? model.choose_device(layout.bytes(), device_limits(layout, options))
               : model.choose(host_bucket(layout));
  }
  if (options.algorithm.is_any_hierarchy()) return cheapest_hierarchy(layout, model, options);
  const Algorithm algorithm = *options.algorithm.algorithm();
  check_fits(algorithm, layout, options);
  return algorithm;
}

std::size_t cheapest_chunk_bytes(const BucketLayout& layout, const ProcessGrid& grid,
                                 const CompileOptions& options) {
  if (layout.is_on_device()) return options.chunk_bytes;
  const Algorithm algorithm = resolve_algorithm(layout, grid, options);
  const CostModel model(grid, costs_for_sizes(algorithm, options.link_costs));
  return model.chunk_bytes(algorithm, host_bucket(layout));
}

std::size_t cheapest_device_buckets(std::size_t bytes, const ProcessGrid& grid,
                                    const CompileOptions& options) {
  const BucketLayout all{.count = bytes / sizeof(float), .memory = MemoryKind::kDevice};
  const LinkCosts costs =
      costs_for_sizes(resolve_algorithm(all, grid, options), link_costs(options));
  return CostModel(grid, costs)
      .device_fusion_bytes(options.algorithm.algorithm(), bytes, device_limits(all, options));
}

double predict_device_us(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options) {
  return CostModel(grid, link_costs(options))
      .predict_device_us(resolve_algorithm(layout, grid, options), layout.bytes(),
                         options.device_chunk_bytes);
}

std::string explain_device_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                                     const CompileOptions& options) {
  return CostModel(grid, link_costs(options))
      .explain_device(resolve_algorithm(layout, grid, options), layout.bytes(),
                      device_limits(layout, options));
}

}  // namespace kolo
