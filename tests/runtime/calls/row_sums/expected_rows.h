#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/kernels/reduce_kernels.h"
#include "runtime/calls/row_sums/row_sums.h"
#include "tests/support/runtime_job.h"

namespace kolo::test {

/// The rows of one rank. Equal seeds give equal rows.
struct Rows {
  std::vector<std::int64_t> indices;
  std::vector<std::byte> elements;
};

/// Draws numbers of many magnitudes, so that their sums depend on the order of addition.
inline Rows draw_rows(unsigned seed, int rank, const RowTable& table, std::size_t most) {
  std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
  Rows rows;
  const std::size_t count = table.height == 0 ? 0 : random() % (most + 1);
  std::vector<double> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    // Low indices are frequent.
    rows.indices.push_back(static_cast<std::int64_t>(random() % (random() % table.height + 1)));
    for (std::size_t j = 0; j < table.width; ++j) {
      const auto digits = static_cast<double>(random() % 2001) - 1000;
      numbers.push_back(std::ldexp(digits, static_cast<int>(random() % 9)));
    }
  }
  rows.elements.resize(numbers.size() * size_of(table.dtype));
  convert(table.dtype, rows.elements.data(), DType::kFloat64, numbers.data(), numbers.size(), 1);
  return rows;
}

using Sums = std::map<std::int64_t, std::vector<std::byte>>;

/// Adds up the rows with equal indices, in the order of `rows`.
inline Sums add_up(const std::vector<std::pair<std::int64_t, const std::byte*>>& rows,
                   const RowTable& table, double scale) {
  std::map<std::int64_t, std::vector<const void*>> by_index;
  for (const auto& [index, row] : rows) by_index[index].push_back(row);
  Sums sums;
  for (const auto& [index, same] : by_index) {
    auto& sum = sums[index];
    sum.resize(table.width * size_of(table.dtype));
    reduce(table.dtype, ReduceOp::kSum, sum.data(), same, table.width, scale);
  }
  return sums;
}

/// Returns the sums that all ranks should get by the contract of sparse all-reduces.
inline Sums expected_sums(const std::vector<Rows>& of_ranks, const RowTable& table, ReduceOp op,
                          const Scales& scales = {}) {
  std::vector<Sums> own;
  std::vector<std::pair<std::int64_t, const std::byte*>> all;
  for (const Rows& rows : of_ranks) {
    std::vector<std::pair<std::int64_t, const std::byte*>> listed;
    for (std::size_t i = 0; i < rows.indices.size(); ++i) {
      listed.emplace_back(rows.indices[i],
                          rows.elements.data() + i * table.width * size_of(table.dtype));
    }
    own.push_back(add_up(listed, table, scales.before));
  }
  for (const Sums& sums : own) {
    for (const auto& [index, sum] : sums) all.emplace_back(index, sum.data());
  }
  const double divisor = op == ReduceOp::kAverage ? static_cast<double>(of_ranks.size()) : 1.0;
  return add_up(all, table, 1.0 / divisor * scales.after);
}

inline void require_right(const RowSums& result, const Sums& expected, const RowTable& table,
                          const std::string& what) {
  const std::size_t row_bytes = table.width * size_of(table.dtype);
  const auto* const rows = static_cast<const std::byte*>(result.rows().data);
  const std::vector<std::byte> zeros(row_bytes);
  const auto holds = [&](std::size_t place, const std::vector<std::byte>& row) {
    return row_bytes == 0 || std::memcmp(rows + place * row_bytes, row.data(), row_bytes) == 0;
  };
  if (result.exchanged_rows()) {
    require(result.indices().size() == expected.size(), what + ": indices");
    std::size_t place = 0;
    for (const auto& [index, row] : expected) {
      require(result.indices()[place] == index, what + ": an index");
      if (!result.is_table()) require(holds(place, row), what + ": a row");
      ++place;
    }
  } else {
    require(result.indices().empty() && result.is_table(), what + ": form");
  }
  const std::size_t height = result.is_table() ? table.height : expected.size();
  require(result.rows().count == height * table.width && result.rows().dtype == table.dtype,
          what + ": shape");
  for (std::size_t i = 0; result.is_table() && i < table.height; ++i) {
    const auto row = expected.find(static_cast<std::int64_t>(i));
    require(holds(i, row == expected.end() ? zeros : row->second), what + ": a row of the table");
  }
}

}  // namespace kolo::test
