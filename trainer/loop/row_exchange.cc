#include "trainer/loop/row_exchange.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace kolo::trainer {

void RowExchange::begin(std::size_t parameter) {
  const Parameter& table = parameters_[parameter];
  const RowGradient& gradient = *table.rows();
  Sum& sum = sums_[parameter];
  sum.ticket = runtime_.sparse_all_reduce_async(
      "rows of " + table.name(),
      {.height = table.shape()[0], .width = gradient.width(), .dtype = DType::kFloat32},
      gradient.indices(), gradient.values().data(), {.op = ReduceOp::kAverage},
      std::move(sum.memory));
}

void RowExchange::finish() {
  for (std::size_t i = 0; i < sums_.size(); ++i) finish(i);
}

void RowExchange::finish(std::size_t parameter) {
  Sum& sum = sums_[parameter];
  if (!sum.ticket) return;
  sum.memory = sum.ticket->sums();
  sum.ticket.reset();
  const BufferView rows = sum.memory.rows();
  const std::span<const float> averages(static_cast<const float*>(rows.data), rows.count);
  RowGradient& gradient = *parameters_[parameter].rows();
  const std::size_t width = gradient.width();
  gradient.clear();
  for (std::size_t i = 0; i < averages.size() / width; ++i) {
    const std::span<const float> row = averages.subspan(i * width, width);
    if (std::ranges::all_of(row, [](float value) { return value == 0.0f; })) continue;
    const auto index =
        sum.memory.is_table() ? static_cast<std::int64_t>(i) : sum.memory.indices()[i];
    gradient.append(index, row, 1.0f);
  }
}

}  // namespace kolo::trainer
