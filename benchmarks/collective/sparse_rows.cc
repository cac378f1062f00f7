#include "benchmarks/collective/sparse_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include <fmt/format.h>

namespace kolo::bench {
namespace {

class SparseRowsRun final : public CollectiveRun {
 public:
  SparseRowsRun(Runtime& runtime, const CollectiveCase& what)
      : runtime_(runtime),
        name_(fmt::format("sparse rows {} bytes", what.bytes)),
        table_{.height = what.height(), .width = what.width, .dtype = what.dtype},
        options_{.result = what.rows_result, .exchange = what.rows_exchange},
        row_bytes_(what.width * size_of(what.dtype)) {
    for (int turn = 0; turn < kRowTurns; ++turn) {
      Turn& each = turns_[static_cast<std::size_t>(turn)];
      each.indices = drawn_rows(what, runtime.rank(), turn);
      each.rows.resize(each.indices.size() * row_bytes_);
    }
  }

  /// Copies the rows of all turns from the table. If an index repeats, its first row gets the
  /// elements and the other rows are zero.
  void write(const void* elements) override {
    next_ = 0;
    for (Turn& turn : turns_) {
      std::vector<bool> seen(table_.height);
      for_each_row(turn, [&](std::size_t index, std::byte* row) {
        if (!seen[index]) std::memcpy(row, at(elements, index), row_bytes_);
        seen[index] = true;
      });
    }
  }
  void read(void* elements) override {
    const RowSums& sums = sums_.front();
    const BufferView rows = sums.rows();
    if (rows.count == 0) return clear(elements);
    if (sums.is_table()) {
      std::memcpy(elements, rows.data, rows.bytes());
      return;
    }
    clear(elements);
    const auto* row = static_cast<const std::byte*>(rows.data);
    for (const std::int64_t index : sums.indices()) {
      std::memcpy(at(elements, static_cast<std::size_t>(index)), row, row_bytes_);
      row += row_bytes_;
    }
  }
  void read_contribution(void* elements) override {
    clear(elements);
    std::vector<bool> seen(table_.height);
    for_each_row(turns_[0], [&](std::size_t index, const std::byte* row) {
      if (!seen[index]) std::memcpy(at(elements, index), row, row_bytes_);
      seen[index] = true;
    });
  }
  void run() override {
    const Turn& turn = turns_[next_];
    next_ = (next_ + 1) % turns_.size();
    const TableRows rows{.table = table_, .indices = turn.indices, .rows = turn.rows.data()};
    sums_ = runtime_.sparse_all_reduce(name_, rows, options_, std::move(sums_)).sums();
  }
  std::string algorithm() const override {
    return sums_.front().exchanged_rows() ? "rows" : "table";
  }

 private:
  struct Turn {
    std::vector<std::int64_t> indices;
    std::vector<std::byte> rows;
  };

  template <typename Visit>
  void for_each_row(Turn& turn, const Visit& visit) const {
    std::byte* row = turn.rows.data();
    for (const std::int64_t index : turn.indices) {
      visit(static_cast<std::size_t>(index), row);
      row += row_bytes_;
    }
  }
  std::byte* at(void* elements, std::size_t index) const {
    return static_cast<std::byte*>(elements) + index * row_bytes_;
  }
  const std::byte* at(const void* elements, std::size_t index) const {
    return static_cast<const std::byte*>(elements) + index * row_bytes_;
  }
  void clear(void* elements) const {
    if (table_.height > 0) std::memset(elements, 0, table_.height * row_bytes_);
  }

  Runtime& runtime_;
  const std::string name_;
  const RowTable table_;
  const RowOptions options_;
  const std::size_t row_bytes_;
  std::array<Turn, kRowTurns> turns_;
  std::size_t next_ = 0;
  std::vector<RowSums> sums_;  // of the last turn
};

}  // namespace

std::vector<std::int64_t> drawn_rows(const CollectiveCase& what, int rank, int turn) {
  const auto height = static_cast<double>(what.height());
  std::mt19937_64 random(static_cast<std::uint64_t>(rank * kRowTurns + turn));
  // The batch size changes from turn to turn, so no two turns have the same number of rows.
  const double batch = what.density * height * (1 + 0.01 * turn);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(batch));
  for (std::int64_t& index : indices) {
    const double uniform = std::generate_canonical<double, 53>(random);
    index = static_cast<std::int64_t>(std::pow(height + 1, uniform)) - 1;
    index = std::clamp<std::int64_t>(index, 0, static_cast<std::int64_t>(what.height()) - 1);
  }
  return indices;
}

std::vector<bool> rows_drawn(const CollectiveCase& what, int rank, int turn) {
  std::vector<bool> drawn(what.height());
  for (const std::int64_t index : drawn_rows(what, rank, turn)) {
    drawn[static_cast<std::size_t>(index)] = true;
  }
  return drawn;
}

std::unique_ptr<CollectiveRun> make_sparse_rows_run(Runtime& runtime, const CollectiveCase& what) {
  return std::make_unique<SparseRowsRun>(runtime, what);
}

}  // namespace kolo::bench
