#include "runtime/calls/row_sums/table_sum.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "runtime/calls/row_sums/row_owners.h"

namespace kolo {
namespace {

std::vector<std::size_t> times(const std::vector<std::size_t>& rows, std::size_t width) {
  std::vector<std::size_t> elements = rows;
  for (std::size_t& count : elements) count *= width;
  return elements;
}

/// Returns a view of the numbers as int64 elements, for an exchange.
BufferView counts_in(Span<std::size_t> numbers) {
  static_assert(sizeof(std::size_t) == sizeof(std::int64_t));
  return {numbers.data(), numbers.size(), DType::kInt64};
}

std::shared_ptr<RowMemory> make_memory(MemoryKind kind, const RowDevice& device) {
  auto memory = std::make_shared<RowMemory>();
  memory->kind = kind;
  const bool is_on_device = kind == MemoryKind::kDevice;
  check(!is_on_device || device.device != nullptr,
        "device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  memory->backend = make_row_backend(is_on_device ? device.device : nullptr);
  return memory;
}

}  // namespace

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

std::string problem_with(const TableRows& given) {
  const auto& [table, indices, rows] = given;
  constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max();
  if (table.memory == MemoryKind::kPinned) return "pinned memory is host memory; call it that";
  if (table.height > kMost / std::max<std::size_t>(table.row_bytes(), 1)) {
    return "the table has more than 2^63 bytes";
  }
  if (const auto outside = first_outside(indices, table.height)) {
    return fmt::format("index {} at position {} lies outside a table of {} rows", indices[*outside],
                       *outside, table.height);
  }
  if (rows == nullptr && !indices.empty() && table.width > 0) return "a buffer is null";
  return {};
}

TableSum::TableSum(const PlanInputs& inputs, const TableRows& given, const RowOptions& options,
                   RowSums& result, const RowDevice& device)
    : inputs_(inputs), table_(given.table), options_(options) {
  // The result stays empty until the call succeeds: after a time-out, operations still write to it.
  memory_ = std::exchange(result, {}).memory_;
  if (!memory_ || memory_->kind != table_.memory) memory_ = make_memory(table_.memory, device);
  backend().begin(device.stream ? &*device.stream : nullptr);
  add_up(given);
}

void TableSum::add_up(const TableRows& given) {
  RowOrder& own = memory_->own;
  own.assign(given.indices, table_.height);
  rows_ = static_cast<const std::byte*>(given.rows);
  const double before = options_.scales.before;
  if (own.is_identity() && before == 1) return;
  std::byte* const sums =
      memory_->own_sums.resize(own.indices.size() * table_.row_bytes(), backend());
  backend().sum_rows(own.groups(), rows_, table_, before, sums);
  rows_ = sums;
}

Tensor TableSum::describe() {
  RowMemory& memory = *memory_;
  memory.description = describe_rows(memory.own.indices, inputs_.grid.world_size());
  memory.descriptions.resize(ranks() * memory.description.size());
  return {memory.description, memory.descriptions};
}

Tensor TableSum::count() {
  RowMemory& memory = *memory_;
  owners_.emplace(memory.descriptions, inputs_.grid.world_size(), table_.height);
  memory.own_counts = owners_->counts(memory.own.indices);
  memory.counts.resize(ranks() * ranks());
  return {counts_in(memory.own_counts), counts_in(memory.counts)};
}

void TableSum::choose() {
  exchanges_rows_ = true;
  if (options_.exchange == RowForm::kRows || options_.result == RowForm::kRows) return;
  const RowPrices prices = price_rows({.height = table_.height,
                                       .width = table_.width,
                                       .dtype = table_.dtype,
                                       .memory = table_.memory,
                                       .busiest = static_cast<double>(traffic().busiest()),
                                       .distinct = traffic().distinct(*owners_)},
                                      inputs_);
  exchanges_rows_ = prices.rows_us <= prices.table_us;
}

TableSum::IndicesAndRows TableSum::send() {
  RowMemory& memory = *memory_;
  memory.received.resize(traffic().received(inputs_.rank));
  memory.elements = times(memory.counts, table_.width);
  const std::size_t own = memory.own.indices.size();
  const ConstBuffer rows{rows_, own * table_.width, table_.dtype, table_.memory};
  std::byte* const received =
      memory.received_rows.resize(memory.received.size() * table_.row_bytes(), backend());
  return {
      .indices = {memory.own.indices, memory.received, memory.counts},
      .rows = {rows, elements(received, memory.received.size() * table_.width), memory.elements}};
}

Tensor TableSum::sum_up() {
  RowMemory& memory = *memory_;
  memory.owned.assign(memory.received, table_.height);
  memory.owned_count = memory.owned.indices.size();
  memory.owned_counts.resize(ranks());
  return {counts_in({&memory.owned_count, 1}), counts_in(memory.owned_counts)};
}

TableSum::IndicesAndRows TableSum::share() {
  RowMemory& memory = *memory_;
  const auto own = memory.owned_counts.begin() + inputs_.rank;
  const std::size_t before = std::accumulate(memory.owned_counts.begin(), own, std::size_t{0});
  const std::size_t all = std::accumulate(own, memory.owned_counts.end(), before);
  memory.indices.resize(all);
  std::ranges::copy(memory.owned.indices,
                    memory.indices.begin() + static_cast<std::ptrdiff_t>(before));
  std::byte* const rows = memory.rows.resize(all * table_.row_bytes(), backend());
  const double divisor = options_.op == ReduceOp::kAverage ? static_cast<double>(ranks()) : 1.0;
  backend().sum_rows(memory.owned.groups(), memory.received_rows.data(), table_,
                     1.0 / divisor * options_.scales.after, rows + before * table_.row_bytes());
  memory.elements = times(memory.owned_counts, table_.width);
  return {.indices = {memory.indices, memory.owned_counts},
          .rows = {elements(rows, all * table_.width), memory.elements}};
}

Tensor TableSum::spread() {
  spread_over_table(memory_->own.indices, rows_);
  return whole_table();
}

void TableSum::finish() {
  RowMemory& memory = *memory_;
  result_.exchanged_rows_ = exchanges_rows_;
  result_.is_table_ = !exchanges_rows_ || options_.result == RowForm::kTable;
  if (!exchanges_rows_) {
    memory.indices.clear();
  } else if (result_.is_table_) {
    spread_over_table(memory.indices, memory.rows.data());
  }
  result_.rows_ = result_.is_table_
                      ? whole_table()
                      : elements(memory.rows.data(), memory.indices.size() * table_.width);
  result_.memory_ = std::move(memory_);
}

void TableSum::spread_over_table(std::span<const std::int64_t> indices, const std::byte* rows) {
  std::byte* const table = memory_->table.resize(table_.bytes(), backend());
  backend().spread_rows(indices, rows, table_, table);
}

BufferView TableSum::whole_table() const {
  return elements(memory_->table.data(), table_.height * table_.width);
}

}  // namespace kolo
