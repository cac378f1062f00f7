#include "comm/collective/compile.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/collective/algorithm.h"

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

Hierarchy parse_hierarchy(std::string_view name) {
  const std::string_view parts = name.substr(std::min(name.size(), kHierarchical.size() + 1));
  const std::size_t comma = parts.find(',');
  if (comma == std::string_view::npos) {
    fail(fmt::format("'{}' is not of the form hierarchical:LOCAL,CROSS", name));
  }
  Hierarchy hierarchy{.local = nullptr,
                      .cross = flat_algorithm(parts.substr(comma + 1)),
                      .local_name = std::string(parts.substr(0, comma)),
                      .cross_name = std::string(parts.substr(comma + 1))};
  if (hierarchy.local_name == "direct") hierarchy.local = &kSharedDirect;
  if (hierarchy.local_name == "ring") hierarchy.local = &kRing;
  if (!hierarchy.local) fail(fmt::format("LOCAL of '{}' must be direct or ring", name));
  return hierarchy;
}

bool sums_in_one_place(std::string_view algorithm) {
  return algorithm == "direct" || algorithm == "hierarchical:direct,direct";
}

Schedule compile_chunks(ScheduleBuilder builder, const CompileOptions& options,
                        const std::function<void(ScheduleBuilder&, Extent)>& append) {
  const Extent whole{0, builder.layout().count};
  const std::size_t chunks = chunk_count(whole, builder.layout().dtype, options.chunk_bytes);
  for (std::size_t i = 0; i < chunks; ++i) {
    append(builder, part_of(whole, chunks, i, builder.layout().dtype));
  }
  return std::move(builder).build();
}

}  // namespace

const std::vector<std::string>& algorithm_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const auto& [name, append] : flat_algorithms()) result.push_back(name);
    result.emplace_back(kHierarchical);
    return result;
  }();
  return names;
}

std::string resolve_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                              const CompileOptions& options) {
  const std::size_t bytes = layout.count * size_of(layout.dtype);
  const bool rounds =
      is_16bit_float(layout.dtype) && layout.op != ReduceOp::kMin && layout.op != ReduceOp::kMax;
  std::string name = options.algorithm;
  if (name == "auto") {
    name = CostModel(grid, options.link_costs).choose(bytes, rounds);
  } else if (name == kHierarchical) {
    const CostModel model(grid, options.link_costs);
    name = "hierarchical:direct,direct";
    for (const auto& [cross, append] : flat_algorithms()) {
      const std::string candidate = "hierarchical:direct," + cross;
      if (!rounds && model.predict_us(candidate, bytes) < model.predict_us(name, bytes))
        name = candidate;
    }
  }
  if (name.starts_with(kHierarchical)) {
    parse_hierarchy(name);
  } else {
    flat_algorithm(name);
  }
  if (rounds && !sums_in_one_place(name)) {
    fail(fmt::format(
        "{} would round {} partial sums at every hop; with 16-bit gradients or wire use "
        "direct or hierarchical:direct,direct",
        name, to_string(layout.dtype)));
  }
  return name;
}

Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options) {
  const std::string name = resolve_algorithm(layout, grid, options);
  std::vector<int> group(static_cast<std::size_t>(grid.world_size()));
  std::iota(group.begin(), group.end(), 0);
  return compile_chunks(
      ScheduleBuilder(rank, name, layout), options, [&](ScheduleBuilder& builder, Extent chunk) {
        const Stage stage{.group = group, .extent = chunk, .finishes = true, .sink = Sink::kUser};
        // Packing in the parts that peers ask for first lets them start before all is packed.
        for (std::size_t i = 0; i < group.size(); ++i) {
          const Extent part = part_of(chunk, group.size(), i, layout.dtype);
          builder.load(builder.bucket(part.offset, part.count));
        }
        if (name.starts_with(kHierarchical)) {
          const Hierarchy hierarchy = parse_hierarchy(name);
          append_hierarchical(builder, stage, grid, *hierarchy.local, hierarchy.cross);
        } else if (name == "direct" && grid.num_nodes() == 1) {
          kSharedDirect.reduce_scatter(builder, stage);
          kSharedDirect.all_gather(builder, stage);
        } else {
          flat_algorithm(name)(builder, stage);
        }
      });
}

Schedule compile_broadcast(int rank, int root, const BucketLayout& layout, const ProcessGrid& grid,
                           const CompileOptions& options) {
  return compile_chunks(ScheduleBuilder(rank, "broadcast", layout), options,
                        [&](ScheduleBuilder& builder, Extent chunk) {
                          append_broadcast(builder, chunk, root, grid);
                        });
}

}  // namespace kolo
