#include "runtime/calls/row_sums/row_owners.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "comm/algorithms/compile.h"
#include "comm/coordinator/combining_tree.h"
#include "topology/node_costs.h"

namespace kolo {
namespace {

/// Returns the number of a rank's rows up to and including its sample `i` of `ranks` samples.
std::size_t rows_up_to(std::size_t i, std::size_t rows, std::size_t ranks) {
  // (i + 1) * rows / ranks, without overflow.
  return (i + 1) * (rows / ranks) + (i + 1) * (rows % ranks) / ranks;
}

/// Bytes of a row's index.
constexpr double kIndexBytes = sizeof(std::int64_t);

/// Returns the predicted time of one agreement: a round up and down the tree of ranks.
double agreement_us(const ProcessGrid& grid, const LinkCosts& costs) {
  double us = grid.largest_node() > 1 ? 2 * costs.memory.latency_us : 0;
  const int deepest = grid.leader(grid.num_nodes() - 1);
  for (auto place = CombiningTree::build(deepest, grid); place.parent >= 0;
       place = CombiningTree::build(place.parent, grid)) {
    us += 2 * (costs.network.latency_us + 2 * costs.network.message_us);
  }
  return us;
}

class RowPricing {
 public:
  RowPricing(const RowSize& size, const PlanInputs& inputs)
      : size_(size),
        inputs_(inputs),
        options_{.algorithm = inputs.algorithm,
                 .network_window = inputs.options.network_window,
                 .link_costs = inputs.costs} {}

  /// Counts change at each call, so each of the two exchanges of rows needs an agreement. Between
  /// them, ranks exchange the numbers of sums.
  double rows_us() const {
    const double ranks = inputs_.grid.world_size();
    const double sent = ranks * size_.busiest;  // Assumes that all ranks are equally busy.
    return exchange_us(CollectiveKind::kAllToAll, sent) +
           bytes_us(CollectiveKind::kAllGather, ranks * kIndexBytes) +
           exchange_us(CollectiveKind::kAllGather, size_.distinct) +
           2 * agreement_us(inputs_.grid, inputs_.costs) +
           memory_us((size_.busiest + size_.distinct / ranks) * size_.row_bytes());
  }

  double table_us() const {
    return collective_us(CollectiveKind::kAllReduce, size_.height * size_.width, size_.dtype,
                         size_.memory);
  }

 private:
  bool is_on_device() const { return size_.memory == MemoryKind::kDevice; }

  /// Returns the predicted time to exchange `rows` rows and their indices (in host memory).
  double exchange_us(CollectiveKind kind, double rows) const {
    if (!is_on_device()) return bytes_us(kind, rows * (size_.row_bytes() + kIndexBytes));
    return bytes_us(kind, rows * kIndexBytes) +
           bytes_us(kind, rows * size_.row_bytes(), MemoryKind::kDevice);
  }

  double bytes_us(CollectiveKind kind, double bytes, MemoryKind memory = MemoryKind::kHost) const {
    return collective_us(kind, static_cast<std::size_t>(bytes), DType::kUInt8, memory);
  }

  double collective_us(CollectiveKind kind, std::size_t count, DType dtype,
                       MemoryKind memory) const {
    const BucketLayout layout{
        .count = count, .dtype = dtype, .placement = Placement::kUser, .memory = memory};
    // The cost model assumes equal parts.
    const CollectiveSpec spec = even_spec(kind, inputs_.grid.world_size(), count);
    return choose({spec, layout, inputs_.grid, options_}).price.us;
  }

  /// Returns the predicted time in which all ranks of a node read or write `bytes` bytes each.
  double memory_us(double bytes) const {
    if (is_on_device()) return 0;  // Device memory is several times as fast as its links.
    const double all = inputs_.grid.largest_node() * bytes;
    return NodeMemory(inputs_.costs.memory, all).own_us(all);
  }

  const RowSize& size_;
  const PlanInputs& inputs_;
  const CompileOptions options_;
};

}  // namespace

std::vector<std::int64_t> describe_rows(std::span<const std::int64_t> indices, int ranks) {
  const auto samples = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> description(samples + 1);
  description[0] = static_cast<std::int64_t>(indices.size());
  for (std::size_t i = 0; i < samples; ++i) {
    const std::size_t rows = rows_up_to(i, indices.size(), samples);
    if (rows > 0) description[i + 1] = indices[rows - 1];
  }
  return description;
}

RowOwners::RowOwners(std::span<const std::int64_t> descriptions, int ranks, std::size_t height) {
  const auto owners = static_cast<std::size_t>(ranks);
  std::vector<std::pair<std::int64_t, std::size_t>> samples;  // index, rows it represents
  std::size_t all = 0;
  for (std::size_t rank = 0; rank < owners; ++rank) {
    const auto description = descriptions.subspan(rank * (owners + 1), owners + 1);
    const auto rows = static_cast<std::size_t>(description[0]);
    std::size_t before = 0;
    for (std::size_t i = 0; i < owners; ++i) {
      const std::size_t now = rows_up_to(i, rows, owners);
      if (now > before) samples.emplace_back(description[i + 1], now - before);
      before = now;
    }
    all += rows;
  }
  std::ranges::sort(samples);
  std::size_t rows = 0;
  for (const auto& [index, count] : samples) {
    rows += count;
    while (ends_.size() + 1 < owners && rows >= rows_up_to(ends_.size(), all, owners)) {
      ends_.push_back(index + 1);
    }
  }
  ends_.resize(owners, static_cast<std::int64_t>(height));
}

std::vector<std::size_t> RowOwners::counts(std::span<const std::int64_t> indices) const {
  std::vector<std::size_t> counts;
  auto begin = indices.begin();
  for (const std::int64_t past : ends_) {
    const auto end = std::lower_bound(begin, indices.end(), past);
    counts.push_back(static_cast<std::size_t>(end - begin));
    begin = end;
  }
  return counts;
}

std::size_t RowTraffic::sent(int rank) const {
  const auto all = static_cast<std::size_t>(ranks);
  std::size_t rows = 0;
  for (std::size_t r = 0; r < all; ++r) rows += counts[static_cast<std::size_t>(rank) * all + r];
  return rows;
}

std::size_t RowTraffic::received(int owner) const {
  const auto all = static_cast<std::size_t>(ranks);
  std::size_t rows = 0;
  for (std::size_t s = 0; s < all; ++s) rows += counts[s * all + static_cast<std::size_t>(owner)];
  return rows;
}

std::size_t RowTraffic::busiest() const {
  std::size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max({most, sent(rank), received(rank)});
  return most;
}

double RowTraffic::distinct(const RowOwners& owners) const {
  double all = 0;
  std::int64_t begin = 0;
  for (int owner = 0; owner < ranks; ++owner) {
    const auto range = static_cast<double>(owners.end(owner) - begin);
    begin = owners.end(owner);
    if (range <= 0) continue;
    double untouched = 1;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t pair = static_cast<std::size_t>(rank) * static_cast<std::size_t>(ranks) +
                               static_cast<std::size_t>(owner);
      untouched *= 1 - std::min(1.0, static_cast<double>(counts[pair]) / range);
    }
    all += range * (1 - untouched);
  }
  return all;
}

RowPrices price_rows(const RowSize& size, const PlanInputs& inputs) {
  const RowPricing pricing(size, inputs);
  return {.rows_us = pricing.rows_us(), .table_us = pricing.table_us()};
}

}  // namespace kolo
