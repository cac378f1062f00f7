#include "runtime/rows/row_reduction.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "runtime/rows/row_price.h"

namespace kolo {
namespace {

static_assert(sizeof(std::size_t) == sizeof(std::int64_t), "counts travel as int64");

BufferView view_of(std::vector<std::int64_t>& numbers) {
  return {.data = numbers.data(), .count = numbers.size(), .dtype = DType::kInt64};
}

}  // namespace

RowReduction::RowReduction(const PlanInputs& inputs, std::string_view name, const RowTable& table,
                           const RowOptions& options, std::span<const std::int64_t> indices,
                           const void* rows, RowSums& result)
    : inputs_(inputs),
      name_(name.empty() ? to_string(RowCall{.table = table, .options = options}) : name),
      table_(table),
      options_(options),
      ranks_(static_cast<std::size_t>(inputs.grid.world_size())),
      calls_(pool_, inputs.rank, inputs.grid.world_size()) {
  const auto require = [&](bool condition, std::string_view what) {
    if (!condition) throw UsageError(fmt::format("'{}': {}", name_, what));
  };
  check_reduction(name_, {options.op, options.scales}, table.dtype);
  require(is_number(table.dtype), "rows are of numbers");
  require(options.op == ReduceOp::kSum || options.op == ReduceOp::kAverage,
          "rows are combined by sum or average");
  require(options.exchange != RowForm::kTable || options.result != RowForm::kRows,
          "a table that is exchanged does not tell which rows the result has");
  constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::size_t width = std::max<std::size_t>(row_bytes(), 1);
  require(table.height <= kMost / width, "the table has more than 2^63 bytes");
  check_rows(name_, indices, table_.height);
  require(rows != nullptr || indices.empty() || table_.width == 0, "a buffer is null");
  // Until the call succeeds the result is empty: if it times out, operations still write to it.
  memory_ = std::exchange(result, {}).memory_;
  if (!memory_) memory_ = std::make_shared<RowMemory>();
  memory_->own.assign(indices, table_.height);
  rows_ = static_cast<const std::byte*>(rows);
  const double before = options.scales.before;
  if (!memory_->own.is_identity() || before != 1) {
    std::byte* const sums = memory_->own_sums.resize(memory_->own.indices.size() * row_bytes());
    sum_rows(memory_->own, rows_, table_.width, table_.dtype, before, sums);
    rows_ = sums;
  }
}

CallSequence::Stage RowReduction::next() {
  switch (phase_) {
    case Phase::kBegin:
      return agree();
    case Phase::kAgreed:
      owners_.emplace(memory_->descriptions, inputs_.grid.world_size(), table_.height);
      return options_.exchange == RowForm::kTable ? exchange_table() : count_rows();
    case Phase::kCounted:
      return exchanges_rows() ? send_rows() : exchange_table();
    case Phase::kSent:
      return sum_up();
    case Phase::kSummed:
      return gather_sums();
    case Phase::kGathered:
      finish_rows();
      break;
    case Phase::kReduced:
      finish_table();
      break;
    case Phase::kOver:
      break;
  }
  phase_ = Phase::kOver;
  return {};
}

CallSequence::Stage RowReduction::agree() {
  phase_ = Phase::kAgreed;
  RowMemory& memory = *memory_;
  memory.description = describe_rows(memory.own.indices, inputs_.grid.world_size());
  memory.descriptions.resize(ranks_ * memory.description.size());
  auto operation =
      calls_.all_gather(name_, memory.description.data(), view_of(memory.descriptions), {});
  operation->rows = RowCall{.table = table_, .options = options_};
  operation->memory = memory_;
  return {std::move(operation)};
}

CallSequence::Stage RowReduction::count_rows() {
  phase_ = Phase::kCounted;
  memory_->own_counts = owners_->counts(memory_->own.indices);
  memory_->counts.resize(ranks_ * ranks_);
  return all_gather_counts("counts", memory_->own_counts.data(), memory_->counts.data(), ranks_);
}

bool RowReduction::exchanges_rows() const {
  if (options_.exchange == RowForm::kRows || options_.result == RowForm::kRows) return true;
  const RowTraffic traffic{.ranks = inputs_.grid.world_size(), .counts = memory_->counts};
  const RowPrices prices = price_rows({.height = table_.height,
                                       .width = table_.width,
                                       .dtype = table_.dtype,
                                       .busiest = static_cast<double>(traffic.busiest()),
                                       .distinct = traffic.distinct(*owners_)},
                                      inputs_);
  return prices.rows_us <= prices.table_us;
}

CallSequence::Stage RowReduction::send_rows() {
  phase_ = Phase::kSent;
  RowMemory& memory = *memory_;
  const RowTraffic traffic{.ranks = inputs_.grid.world_size(), .counts = memory.counts};
  memory.received.resize(traffic.received(inputs_.rank));
  std::vector<std::size_t> elements = memory.counts;
  for (std::size_t& count : elements) count *= table_.width;
  const BufferView received{
      .data = memory.received_rows.resize(memory.received.size() * row_bytes()),
      .count = memory.received.size() * table_.width,
      .dtype = table_.dtype};
  return {step(calls_.all_to_all(step_name("indices to owners"), memory.own.indices.data(),
                                 view_of(memory.received), memory.counts)),
          step(calls_.all_to_all(step_name("rows to owners"), rows_, received, elements))};
}

CallSequence::Stage RowReduction::sum_up() {
  phase_ = Phase::kSummed;
  RowMemory& memory = *memory_;
  memory.owned.assign(memory.received, table_.height);
  memory.owned_count = static_cast<std::int64_t>(memory.owned.indices.size());
  memory.owned_counts.resize(ranks_);
  return all_gather_counts("sums", &memory.owned_count, memory.owned_counts.data(), 1);
}

CallSequence::Stage RowReduction::gather_sums() {
  phase_ = Phase::kGathered;
  RowMemory& memory = *memory_;
  std::vector<std::size_t> counts(memory.owned_counts.begin(), memory.owned_counts.end());
  std::size_t before = 0, all = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (static_cast<int>(r) < inputs_.rank) before += counts[r];
    all += counts[r];
  }
  memory.indices.resize(all);
  std::ranges::copy(memory.owned.indices,
                    memory.indices.begin() + static_cast<std::ptrdiff_t>(before));
  sums_ = {.data = memory.rows.resize(all * row_bytes()),
           .count = all * table_.width,
           .dtype = table_.dtype};
  const double divisor = options_.op == ReduceOp::kAverage ? static_cast<double>(ranks_) : 1.0;
  const double scale = 1.0 / divisor * options_.scales.after;
  sum_rows(memory.owned, memory.received_rows.data(), table_.width, table_.dtype, scale,
           memory.rows.data() + before * row_bytes());
  std::vector<std::size_t> elements = counts;
  for (std::size_t& count : elements) count *= table_.width;
  return {step(calls_.all_gather(step_name("indices"), nullptr, view_of(memory.indices), counts)),
          step(calls_.all_gather(step_name("rows"), nullptr, sums_, elements))};
}

void RowReduction::finish_rows() {
  result_.exchanged_rows_ = true;
  result_.is_table_ = options_.result == RowForm::kTable;
  result_.rows_ = sums_;
  if (result_.is_table_) {
    result_.rows_ = cleared_table();
    spread_rows(memory_->indices, memory_->rows.data(), row_bytes(), memory_->table.data());
  }
  result_.memory_ = std::move(memory_);
}

CallSequence::Stage RowReduction::exchange_table() {
  phase_ = Phase::kReduced;
  memory_->indices.clear();
  sums_ = cleared_table();
  spread_rows(memory_->own.indices, rows_, row_bytes(), memory_->table.data());
  const Reduction reduction(options_.op, {.after = options_.scales.after});
  return {step(calls_.all_reduce(step_name("table"), sums_, reduction))};
}

void RowReduction::finish_table() {
  result_.exchanged_rows_ = false;
  result_.is_table_ = true;
  result_.rows_ = sums_;
  result_.memory_ = std::move(memory_);
}

BufferView RowReduction::cleared_table() {
  const BufferView table{.data = memory_->table.resize(table_.height * row_bytes()),
                         .count = table_.height * table_.width,
                         .dtype = table_.dtype};
  if (table.count > 0) std::memset(table.data, 0, table.bytes());
  return table;
}

CallSequence::Stage RowReduction::all_gather_counts(std::string_view what, const void* mine,
                                                    void* all, std::size_t each) {
  const BufferView result{.data = all, .count = each * ranks_, .dtype = DType::kInt64};
  return {step(calls_.all_gather(step_name(what), mine, result, {}))};
}

std::shared_ptr<Operation> RowReduction::step(std::shared_ptr<Operation> operation) const {
  operation->is_step = true;
  operation->memory = memory_;
  return operation;
}

/// No step's name ends in another one's, so steps of different calls have different names.
std::string RowReduction::step_name(std::string_view step) const {
  return fmt::format("{}: {}", name_, step);
}

// --- RowSums ------------------------------------------------------------------------------------

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

std::span<const std::int64_t> RowSums::indices() const {
  return memory_ ? std::span<const std::int64_t>(memory_->indices)
                 : std::span<const std::int64_t>();
}

}  // namespace kolo
