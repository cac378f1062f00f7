#include "runtime/calls/rows/row_sums.h"

#include <utility>

#include "runtime/calls/rows/row_memory.h"

namespace kolo {

RowSums::RowSums() = default;
RowSums::RowSums(RowSums&& other) noexcept { *this = std::move(other); }
RowSums& RowSums::operator=(RowSums&& other) noexcept {
  is_table_ = std::exchange(other.is_table_, false);
  exchanged_rows_ = std::exchange(other.exchanged_rows_, false);
  rows_ = std::exchange(other.rows_, {});
  memory_ = std::exchange(other.memory_, nullptr);
  return *this;
}
RowSums::~RowSums() = default;

Span<const std::int64_t> RowSums::indices() const {
  return memory_ ? Span<const std::int64_t>(memory_->indices) : Span<const std::int64_t>();
}

}  // namespace kolo
