#include "comm/algorithms/all_reduce/all_reduce.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/algorithms/all_reduce/cost_model.h"
#include "comm/algorithms/chunking.h"
#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "topology/node_costs.h"

namespace kolo {

std::size_t Stage::position(int rank) const {
  const auto it = std::find(group.begin(), group.end(), rank);
  ensure(it != group.end(), "rank is not in the group of its stage");
  return static_cast<std::size_t>(it - group.begin());
}

void append_by_messages(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                        AppendStage exchange, int send_order) {
  const bool on_host = builder.layout().memory == MemoryKind::kHost;
  for (const Stage& stage : stages) {
    if (on_host) {
      builder.next_chunk();
      load_parts(builder, stage, send_order);
    }
    exchange(builder, stage);
  }
}

namespace {

#define KOLO_ADDRESS(name) &all_reduce::name,
constexpr const FlatAllReduce* kFlat[] = {KOLO_ALL_REDUCES(KOLO_ADDRESS)};
#undef KOLO_ADDRESS

bool is_local(const FlatAllReduce& each) { return each.phases != nullptr; }
bool is_cross(const FlatAllReduce& each) { return each.exchange != nullptr; }

template <typename Fits>
void check_part(std::string_view place, std::string_view name, std::string_view hierarchy,
                Fits fits) {
  std::vector<std::string> names;
  for (const FlatAllReduce* each : kFlat) {
    if (fits(*each)) names.emplace_back(each->name);
  }
  if (std::ranges::find(names, name) != names.end()) return;
  throw UsageError(fmt::format("{} of '{}': {}", place, hierarchy, describe_unknown(name, names)));
}

[[noreturn]] void refuse(std::string what) {
  throw KoloError(Error{.code = ErrorCode::kConfig, .what = std::move(what)});
}

CostModel model_of(const CompileContext& context) {
  LinkCosts costs = context.options.link_costs;
  if (context.options.network_takes_device_memory) {
    costs.staging = {.latency_us = 0, .bytes_per_us = std::numeric_limits<double>::infinity()};
  }
  return {context.grid, std::move(costs)};
}

std::vector<Extent> pieces_of(const CompileContext& context, const FlatAllReduce* flat) {
  const BucketLayout& layout = context.layout;
  const bool is_whole = flat != nullptr && flat->in_one_piece;
  if (layout.is_on_device()) {
    return device_chunks(layout.count, device_padding(context.grid, layout.dtype), layout.dtype,
                         is_whole ? layout.bytes() + 1 : context.options.device_chunk_bytes);
  }
  if (is_whole) return {{0, layout.count}};
  const auto own =
      flat != nullptr && flat->piece_bytes != nullptr ? flat->piece_bytes(context) : std::nullopt;
  return own ? host_pieces(layout, *own) : host_pieces(layout, context.grid, context.options);
}

/// Returns the fraction of the sums that each node makes, or an empty vector for equal parts. Every
/// node sums in group order, so the fractions change no bit.
std::vector<double> shares_between_nodes(const CompileContext& context,
                                         const AllReduce& all_reduce) {
  const int nodes = context.grid.num_nodes();
  const bool one_rank_each =
      all_reduce.hierarchy() != nullptr || nodes == context.grid.world_size();
  const bool may_differ =
      !context.layout.is_on_device() && one_rank_each && all_reduce.between_nodes().takes_shares;
  return may_differ ? node_shares(context.options.link_costs, nodes) : std::vector<double>{};
}

void append_hierarchy(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                      const CompileContext& context, const Hierarchy& hierarchy) {
  const IntraNodePhases& local = *hierarchy.local->phases;
  const AppendStage cross = hierarchy.cross->exchange;
  if (context.layout.is_on_device()) {
    return append_hierarchical(builder, stages, context.grid, local, cross);
  }
  for (const Stage& stage : stages) {
    builder.next_chunk();
    load_parts(builder, stage, 1);
    append_hierarchical(builder, {stage}, context.grid, local, cross);
  }
}

}  // namespace

AllReduce::AllReduce(const Hierarchy& hierarchy)
    : form_(hierarchy),
      name_(fmt::format("{}:{},{}", kHierarchical, hierarchy.local->name, hierarchy.cross->name)) {}

const FlatAllReduce* AllReduce::flat() const {
  const auto* const* flat = std::get_if<const FlatAllReduce*>(&form_);
  return flat == nullptr ? nullptr : *flat;
}

const FlatAllReduce& AllReduce::between_nodes() const {
  return flat() != nullptr ? *flat() : *hierarchy()->cross;
}

bool AllReduce::takes(MemoryKind memory) const {
  if (flat() != nullptr) return flat()->memories.has(memory);
  return hierarchy()->local->phases->memories().has(memory) &&
         hierarchy()->cross->memories.has(memory);
}

bool AllReduce::sums_in_one_place() const {
  if (flat() != nullptr) return flat()->sums_in_one_place;
  return hierarchy()->local->sums_in_one_place && hierarchy()->cross->sums_in_one_place;
}

bool AllReduce::is_for_auto(MemoryKind memory) const {
  if (flat() != nullptr) return flat()->auto_choice.has(memory);
  const auto* const preferred = std::ranges::find_if(kFlat, [&](const FlatAllReduce* each) {
    return is_local(*each) && each->phases->memories().has(memory);
  });
  return takes(memory) && hierarchy()->local == *preferred;
}

bool AllReduce::serves(const CompileContext& context) const {
  const BucketLayout& layout = context.layout;
  const bool is_bucket = !layout.is_in_tensors(MemoryKind::kDevice);
  if (context.spec.kind != CollectiveKind::kAllReduce || !is_bucket || !takes(layout.memory))
    return false;
  if (!layout.is_on_device()) return true;
  return needs_native() ? context.options.native_spans_nodes
                        : hierarchy() == nullptr || context.options.native_in_nodes;
}

bool AllReduce::is_for_auto(const CompileContext& context) const {
  const BucketLayout& layout = context.layout;
  const bool rounds_often = layout.rounds() && !sums_in_one_place();
  if (!is_for_auto(layout.memory) || rounds_often) return false;
  if (layout.is_on_device()) return true;
  const bool depends_on_links = context.grid.num_nodes() == 1 && !maps_memory();
  const bool is_too_large = flat() != nullptr && layout.bytes() > flat()->auto_most_bytes;
  return !depends_on_links && !is_too_large;
}

void AllReduce::check(const CompileContext& context) const {
  if (!context.layout.rounds() || sums_in_one_place()) return;
  std::vector<std::string_view> others;
  for (const AllReduce& each : all_reduces()) {
    if (each.takes(context.layout.memory) && each.sums_in_one_place())
      others.push_back(each.name());
  }
  refuse(
      fmt::format("algorithm {} would round {} partial sums at every hop; with 16-bit gradients or "
                  "wire use one of {}",
                  name_, to_string(context.layout.dtype), fmt::join(others, "; ")));
}

Price AllReduce::price(const CompileContext& context) const {
  const CostModel model = model_of(context);
  return context.layout.is_on_device()
             ? model.device_price(*this, context.layout.bytes(), context.options.device_chunk_bytes)
             : model.host_price(*this, host_bucket(context.layout));
}

// If chunk sizes change the order of sums, they must not depend on costs measured in this run.
// Otherwise two equal runs could produce different bits.
std::size_t AllReduce::chunk_bytes(const CompileContext& context) const {
  if (context.layout.is_on_device()) return context.options.chunk_bytes;
  const LinkCosts costs = sums_in_one_place() ? context.options.link_costs : LinkCosts{};
  return CostModel(context.grid, costs).chunk_bytes(*this, host_bucket(context.layout));
}

void AllReduce::append(ScheduleBuilder& builder, const CompileContext& context) const {
  const std::vector<int> ranks = context.grid.ranks();
  const std::vector<double> shares = shares_between_nodes(context, *this);
  std::vector<Stage> stages;
  for (const Extent& piece : pieces_of(context, flat())) {
    stages.push_back({.group = ranks, .extent = piece, .node_shares = shares});
  }
  if (context.layout.is_on_device()) {
    // One launch packs many tensors. Packing a piece overlaps the collectives of the previous
    // piece.
    for (const Stage& stage : stages) {
      builder.load(builder.bucket(stage.extent.offset, stage.extent.count));
    }
  }
  if (hierarchy() != nullptr) return append_hierarchy(builder, stages, context, *hierarchy());
  if (flat()->append != nullptr) return flat()->append(builder, stages, context);
  append_by_messages(builder, stages, flat()->exchange, flat()->send_order);
}

std::span<const AllReduce> all_reduces() {
  static const std::vector<AllReduce> all = [] {
    std::vector<AllReduce> list;
    for (const FlatAllReduce* each : kFlat) list.emplace_back(*each);
    for (const FlatAllReduce* local : kFlat) {
      for (const FlatAllReduce* cross : kFlat) {
        if (is_local(*local) && is_cross(*cross)) list.emplace_back(Hierarchy{local, cross});
      }
    }
    return list;
  }();
  return all;
}

const AllReduce& find_all_reduce(std::string_view name) {
  const auto found = std::ranges::find(all_reduces(), name, &AllReduce::name);
  if (found != all_reduces().end()) return *found;
  check_hierarchy(name);
  std::vector<std::string> names;
  for (const AllReduce& each : all_reduces()) names.emplace_back(each.name());
  throw UsageError("algorithm " + describe_unknown(name, names));
}

void check_hierarchy(std::string_view name) {
  if (!name.starts_with(kHierarchical)) return;
  const std::string_view parts = name.substr(kHierarchical.size());
  const std::size_t comma = parts.find(',');
  if (!parts.starts_with(':') || comma == std::string_view::npos) {
    throw UsageError(
        fmt::format("algorithm '{}' is not of the form hierarchical:LOCAL,CROSS", name));
  }
  check_part("LOCAL", parts.substr(1, comma - 1), name, is_local);
  check_part("CROSS", parts.substr(comma + 1), name, is_cross);
}

}  // namespace kolo
