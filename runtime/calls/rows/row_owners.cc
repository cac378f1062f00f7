#include "runtime/calls/rows/row_owners.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Rows of a rank up to and with its sample `i`, of `ranks` samples.
std::size_t rows_up_to(std::size_t i, std::size_t rows, std::size_t ranks) {
  // (i + 1) * rows / ranks, without overflow.
  return (i + 1) * (rows / ranks) + (i + 1) * (rows % ranks) / ranks;
}

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
  std::vector<std::pair<std::int64_t, std::size_t>> samples;  // the index, and the rows up to it
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

}  // namespace kolo
