#include "comm/algorithms/compile.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/all_reduce/cost_model.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/registry.h"
#include "comm/base/check.h"

namespace kolo {
namespace {

std::string time_text(double us) {
  return us < 1000 ? fmt::format("{:.1f} us", us) : fmt::format("{:.1f} ms", us / 1000);
}

std::vector<const Algorithm*> serving(const CompileContext& context) {
  std::vector<const Algorithm*> found;
  std::ranges::copy_if(all_algorithms(), std::back_inserter(found),
                       [&](const Algorithm* each) { return each->serves(context); });
  return found;
}

/// Whether a choice is the device's library, of which no call was timed.
auto is_untimed_native(const CompileContext& context) {
  const bool is_untimed = context.options.link_costs.native_timed == 0;
  return [is_untimed](const Choice& choice) {
    return is_untimed && choice.algorithm->name() == "native";
  };
}

/// Sorts the candidates of "auto" by price, cheapest first. Drops algorithms of infinite price.
std::vector<Choice> by_price(const std::vector<const Algorithm*>& candidates,
                             const CompileContext& context) {
  std::vector<Choice> priced;
  for (const Algorithm* each : candidates) {
    if (!each->is_for_auto(context)) continue;
    const Price price = each->price(context);
    if (!std::isfinite(price.us)) continue;
    const auto us_of = [](const Choice& choice) { return choice.price.us; };
    priced.insert(std::ranges::upper_bound(priced, price.us, {}, us_of), {each, price});
  }
  // The library of a device knows its links; Kolo only guesses their costs until it has timed
  // calls.
  const auto native = std::ranges::find_if(priced, is_untimed_native(context));
  std::rotate(priced.begin(), native, native == priced.end() ? native : std::next(native));
  return priced;
}

std::optional<Choice> named(std::string_view name, const std::vector<const Algorithm*>& candidates,
                            const CompileContext& context) {
  if (name == kHierarchical) {
    std::vector<const Algorithm*> hierarchies = candidates;
    std::erase_if(hierarchies,
                  [](const Algorithm* each) { return !each->name().starts_with(kHierarchical); });
    const std::vector<Choice> priced = by_price(hierarchies, context);
    return priced.empty() ? std::nullopt : std::make_optional(priced.front());
  }
  for (const Algorithm* each : candidates) {
    if (each->name() != name) continue;
    each->check(context);
    const Price price = each->price(context);
    if (std::isfinite(price.us)) return Choice{each, price};
  }
  return std::nullopt;
}

std::optional<Choice> asked_for(const std::vector<const Algorithm*>& candidates,
                                const CompileContext& context) {
  for (const std::string_view name : context.options.algorithm.names_for(context.spec.kind)) {
    if (const auto found = named(name, candidates, context)) return found;
  }
  return std::nullopt;
}

/// Returns the tuned choice for a bucket like the measured ones; null if there is none.
const TunedChoice* tuned_for(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  const bool rounds = reduces(spec.kind) && layout.rounds();
  if (options.tuning == nullptr || layout.is_on_device() || rounds) return nullptr;
  for (const TunedChoice& each : *options.tuning) {
    const bool fits = each.is_for(layout.placement) && each.covers(layout.bytes());
    if (fits && each.collective == to_string(spec.kind)) return &each;
  }
  return nullptr;
}

}  // namespace

std::vector<Choice> considered(const CompileContext& context) {
  return by_price(serving(context), context);
}

Choice choose(const CompileContext& context) {
  const std::vector<const Algorithm*> candidates = serving(context);
  if (const auto asked = asked_for(candidates, context)) {
    return {asked->algorithm, asked->price, fmt::format("{}: asked for", asked->algorithm->name())};
  }
  const std::vector<Choice> priced = by_price(candidates, context);
  check(!priced.empty(), "only all-reduces take tensors that are in place in a bucket");
  const TunedChoice* const tuned = tuned_for(context);
  const auto found = std::ranges::find_if(priced, [&](const Choice& each) {
    return tuned != nullptr && each.algorithm->name() == tuned->algorithm;
  });
  if (found != priced.end()) {
    return {found->algorithm, found->price,
            fmt::format("{}: tuned; {} predicted", tuned->algorithm, time_text(found->price.us)),
            tuned->chunk_bytes};
  }
  const Choice& best = priced.front();
  if (is_untimed_native(context)(best)) {
    return {best.algorithm, best.price, "native: the device's library, of which no call was timed"};
  }
  std::string reason =
      fmt::format("{}: {} predicted", best.algorithm->name(), time_text(best.price.us));
  if (priced.size() > 1) {
    reason += fmt::format("; {} {}", priced[1].algorithm->name(), time_text(priced[1].price.us));
  }
  return {best.algorithm, best.price, std::move(reason)};
}

std::size_t choose_placing(std::span<const Placing> placings, const ProcessGrid& grid,
                           const CompileOptions& options) {
  std::size_t cheapest = placings.size() - 1;
  double least_us = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < placings.size(); ++i) {
    const CompileContext context{placings[i].spec, placings[i].layout, grid, options};
    const std::vector<const Algorithm*> candidates = serving(context);
    if (asked_for(candidates, context)) return i;
    const std::vector<Choice> priced = by_price(candidates, context);
    if (priced.empty()) continue;
    const bool is_untimed = is_untimed_native(context)(priced.front());
    const double us = is_untimed ? 0 : priced.front().price.us + placings[i].extra_us;
    if (us >= least_us) continue;
    least_us = us;
    cheapest = i;
  }
  return cheapest;
}

double bounce_us(const CollectiveSpec& spec, DType dtype, int ranks, const LinkCost& staging) {
  std::vector<std::size_t> given(static_cast<std::size_t>(ranks)), got(given);
  for (const CollectiveSpec::Part& part : spec.parts()) {
    for (const int rank : part.contributors) {
      given[static_cast<std::size_t>(rank)] += part.extent.count;
    }
    for (const int rank : part.receivers) got[static_cast<std::size_t>(rank)] += part.extent.count;
  }
  const auto copy_us = [&](std::size_t count) {
    return count == 0 ? 0.0 : transfer_us(staging, static_cast<double>(count * size_of(dtype)));
  };
  return copy_us(std::ranges::max(given)) + copy_us(std::ranges::max(got));
}

// Bucket sizes must not depend on measured costs if they change bits of results. "hierarchical"
// leaves the choice open, and most hierarchies do not sum in one place.
std::size_t cheapest_bucket_bytes(std::size_t bytes, MemoryKind memory, const ProcessGrid& grid,
                                  const CompileOptions& options, Placement placement) {
  if (options.tuning != nullptr && memory == MemoryKind::kHost) {
    for (const TunedChoice& each : *options.tuning) {
      const bool fits = each.is_for(placement) && each.covers(bytes);
      if (each.fusion_bytes > 0 && fits) return each.fusion_bytes;
    }
  }
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
  const auto choice_of = [&](std::size_t size, const CompileOptions& with) {
    const BucketLayout layout{.count = size / sizeof(float), .memory = memory};
    return choose({spec, layout, grid, with});
  };
  CompileOptions stable = options;
  stable.tuning = nullptr;
  const std::vector<std::string_view> names = options.algorithm.names_for(spec.kind);
  const bool is_open = std::ranges::find(names, kHierarchical) != names.end();
  if (is_open || !choice_of(bytes, options).algorithm->sums_in_one_place()) {
    stable.link_costs = LinkCosts{};
  }
  const auto cost_us = [&](std::size_t size) {
    const std::size_t bucket = std::min(size, bytes);
    const Price price = choice_of(bucket, stable).price;
    const double buckets =
        static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(bucket, 1));
    // The time after the last gradient, plus the time for which all buckets keep resources busy.
    return price.us + buckets * price.busy_us;
  };
  const std::vector<std::size_t> sizes = sizes_for(bytes, kSmallestChunk);
  return *std::ranges::min_element(sizes, {}, cost_us);
}

DeviceMessages device_messages(const BucketLayout& layout, const CompileOptions& options) {
  if (!layout.is_on_device()) return {};
  // No message is longer than the bucket.
  const std::size_t twice = std::max(2 * layout.bytes(), 2 * kWireAlignment);
  return {.are_direct = options.network_takes_device_memory,
          .staging_count = std::min(options.staging_bytes, twice) / size_of(layout.dtype)};
}

Schedule compile(int rank, const Algorithm& algorithm, const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  ScheduleBuilder builder(rank, std::string(algorithm.name()), layout,
                          device_messages(layout, options), window_width(layout, grid, options));
  algorithm.append(builder, context);
  Schedule schedule = std::move(builder).build();
  schedule.eager = may_be_eager(layout, grid, options);
  schedule.mutual = spec.kind == CollectiveKind::kAllReduce || spec.is_mutual();
  return schedule;
}

Schedule compile(int rank, const CollectiveSpec& spec, const BucketLayout& layout,
                 const ProcessGrid& grid, const CompileOptions& options) {
  const CompileContext context{spec, layout, grid, options};
  return compile(rank, *choose(context).algorithm, context);
}

}  // namespace kolo
