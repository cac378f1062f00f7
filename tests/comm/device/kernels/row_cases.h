#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "comm/kernels/reduce_kernels.h"
#include "tests/comm/device/kernels/dtype_samples.h"

namespace kolo::test {

constexpr std::uint32_t kRowSeed = 23;
constexpr std::size_t kRowMargin = 64;  // Bytes around the output of a kernel, compared too.

/// Groups of rows to be summed. `rows` and `sums` begin at a multiple of 16 bytes.
struct RowSums {
  DType dtype = DType::kFloat32;
  std::size_t width = 0;
  double scale = 1.0;
  std::size_t count = 0;                               ///< Number of groups.
  std::vector<std::size_t> positions = {}, ends = {};  ///< Without positions, group i is row i.
  std::vector<std::byte> rows = {}, sums = {};
  std::size_t rows_at = 0, sums_at = 0;  ///< Offsets of the first row and first sum in bytes.

  RowGroups groups() const { return {.count = count, .positions = positions, .ends = ends}; }
};

/// Makes groups of 1 to 211 rows. The rows of a group are scattered at random.
inline RowSums make_row_sums(DType dtype, std::size_t width, bool is_grouped) {
  RowSums made{.dtype = dtype, .width = width};
  std::vector<std::size_t> sizes = {1, 2, 5, 211, 1, 3, 4, 8, 1, 9, 2};
  std::mt19937 random(kRowSeed);
  std::ranges::shuffle(sizes, random);
  std::size_t rows = sizes.size();
  made.count = sizes.size();
  if (is_grouped) {
    made.ends.resize(sizes.size());
    std::partial_sum(sizes.begin(), sizes.end(), made.ends.begin());
    rows = made.ends.back();
    made.positions.resize(rows);
    std::iota(made.positions.begin(), made.positions.end(), std::size_t{0});
    std::ranges::shuffle(made.positions, random);
  }
  made.rows = samples(dtype, rows * width, kRowSeed);
  made.sums = samples(dtype, made.count * width, kRowSeed + 1);
  return made;
}

/// Returns a copy with rows and sums shifted by these elements, and margins around the sums.
inline RowSums shifted(RowSums made, std::size_t rows_shift, std::size_t sums_shift) {
  made.rows_at = rows_shift * size_of(made.dtype);
  made.sums_at = kRowMargin + sums_shift * size_of(made.dtype);
  made.rows.insert(made.rows.begin(), made.rows_at, std::byte{0x5a});
  made.sums.insert(made.sums.begin(), made.sums_at, std::byte{0x5a});
  made.sums.insert(made.sums.end(), kRowMargin, std::byte{0x5a});
  return made;
}

/// Compares row sums with the reference. `on_device` sums rows and returns the memory of the sums.
template <typename OnDevice>
void expect_row_sums(const OnDevice& on_device) {
  constexpr struct {
    std::size_t rows, sums;
  } kShifts[] = {{0, 0}, {1, 0}, {0, 1}, {2, 4}, {8, 2}, {4, 12}, {8, 24}};
  for (const DType dtype : kNumberDTypes) {
    for (const std::size_t width : {0u, 1u, 3u, 16u, 17u, 100u, 768u}) {
      for (const bool is_grouped : {false, true}) {
        const RowSums made = make_row_sums(dtype, width, is_grouped);
        for (const auto& shift : kShifts) {
          for (const double scale : {1.0, 1.0 / 3}) {
            SCOPED_TRACE(testing::Message()
                         << to_string(dtype) << ", width " << width << ", grouped " << is_grouped
                         << ", shifts " << shift.rows << " and " << shift.sums << ", scale "
                         << scale << ", seed " << kRowSeed);
            RowSums tried = shifted(made, shift.rows, shift.sums);
            tried.scale = scale;
            const std::vector<std::byte> actual = on_device(tried);
            sum_rows(tried.groups(), tried.rows.data() + tried.rows_at, width, dtype, scale,
                     tried.sums.data() + tried.sums_at);
            ASSERT_EQ(actual, tried.sums);
          }
        }
      }
    }
  }
}

/// Rows to be spread over a table. Margins surround the table.
struct RowSpread {
  std::vector<std::int64_t> indices = {};
  std::size_t row_bytes = 0;
  std::size_t height = 0;
  std::vector<std::byte> rows = {}, table = {};
  std::size_t rows_at = 0, table_at = 0;
};

inline RowSpread make_row_spread(std::size_t rows, std::size_t row_bytes, std::size_t height) {
  RowSpread made{
      .indices = std::vector<std::int64_t>(height), .row_bytes = row_bytes, .height = height};
  std::mt19937 random(kRowSeed);
  std::iota(made.indices.begin(), made.indices.end(), std::int64_t{0});
  std::ranges::shuffle(made.indices, random);
  made.indices.resize(rows);
  made.rows = samples(DType::kUInt8, rows * row_bytes, kRowSeed);
  made.table = samples(DType::kUInt8, height * row_bytes, kRowSeed + 1);
  return made;
}

/// Compares spread rows with the reference. `on_device` returns the memory of the table.
template <typename OnDevice>
void expect_row_spread(const OnDevice& on_device) {
  const auto expect_equal = [&](RowSpread tried) {
    const std::vector<std::byte> actual = on_device(tried);
    std::byte* const table = tried.table.data() + tried.table_at;
    std::fill_n(table, tried.height * tried.row_bytes, std::byte{0});
    spread_rows(tried.indices, tried.rows.data() + tried.rows_at, tried.row_bytes, table);
    ASSERT_EQ(actual, tried.table);
  };
  for (const std::size_t row_bytes : {0u, 1u, 2u, 3u, 4u, 8u, 16u, 24u, 34u, 68u, 400u, 3072u}) {
    for (const std::size_t rows_shift : {0u, 1u, 2u, 4u, 8u}) {
      for (const std::size_t table_shift : {0u, 1u, 2u, 4u, 8u}) {
        SCOPED_TRACE(testing::Message() << row_bytes << " bytes, shifts " << rows_shift << " and "
                                        << table_shift << ", seed " << kRowSeed);
        RowSpread tried = make_row_spread(23, row_bytes, 57);
        tried.rows_at = rows_shift;
        tried.table_at = kRowMargin + table_shift;
        tried.rows.insert(tried.rows.begin(), tried.rows_at, std::byte{0x5a});
        tried.table.insert(tried.table.begin(), tried.table_at, std::byte{0x5a});
        tried.table.insert(tried.table.end(), kRowMargin, std::byte{0x5a});
        expect_equal(tried);
      }
    }
  }
  expect_equal(make_row_spread(0, 12, 57));
  expect_equal(make_row_spread(0, 12, 0));
  expect_equal(make_row_spread(57, 12, 57));
}

}  // namespace kolo::test
