#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/job_values.h"
#include "tests/support/calls/sum_rows.h"

namespace kolo::test {

/// Row-sparse all-reduces, with other rows on each rank and in each round.
class TableRows {
 public:
  explicit TableRows(Runtime& job) : job_(job) {}

  /// Even rounds have exact sums, by either exchange; the bits of odd ones are those of rows, which
  /// are summed in the order of ranks whatever the nodes.
  void round(int round, Digest& digest) {
    const std::vector<std::int64_t> indices = indices_of(job_.rank(), round);
    std::vector<float> rows;
    for (std::size_t i = 0; i < indices.size() * kWidth; ++i) {
      rows.push_back(round % 2 == 0 ? static_cast<float>(whole(job_.rank(), round, i))
                                    : fraction(job_.rank(), round, i));
    }
    const RowTable table{.height = kHeight, .width = kWidth, .dtype = DType::kFloat32};
    sum_rows(job_, "rows", table, indices, rows.data(), sums_,
             {.result = RowForm::kTable, .exchange = RowForm::kRows});
    if (round % 2 == 0) check(round);
    digest.add(sums_.rows());
    if (round % 2 != 0) return;
    sum_rows(job_, "table", table, indices, rows.data(), sums_, {.exchange = RowForm::kTable});
    check(round);
    sum_rows(job_, "auto", table, indices, rows.data(), sums_, {.result = RowForm::kTable});
    check(round);
  }

 private:
  static constexpr std::size_t kHeight = 3000, kWidth = 33;

  /// Rank 1 has none in every second exact round.
  static std::vector<std::int64_t> indices_of(int rank, int round) {
    std::vector<std::int64_t> indices;
    const int count = rank == 1 && round % 4 == 0 ? 0 : 300 + 100 * rank + 50 * round;
    for (int i = 0; i < count; ++i) {
      indices.push_back(static_cast<std::int64_t>(i) * i * (rank + 3) % (i % 2 == 0 ? 50 : 3000));
    }
    return indices;
  }

  void check(int round) const {
    std::vector<int> expected(kHeight * kWidth);
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      std::size_t i = 0;
      for (const std::int64_t index : indices_of(rank, round)) {
        for (std::size_t j = 0; j < kWidth; ++j, ++i) {
          expected[static_cast<std::size_t>(index) * kWidth + j] += whole(rank, round, i);
        }
      }
    }
    const auto* const table = static_cast<const float*>(sums_.rows().data);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (table[i] == static_cast<float>(expected[i])) continue;
      throw WrongSum("a table of rows: element " + std::to_string(i) + " is wrong");
    }
  }

  Runtime& job_;
  RowSums sums_;
};

}  // namespace kolo::test
