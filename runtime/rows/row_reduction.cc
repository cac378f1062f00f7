#include "runtime/rows/row_reduction.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

static_assert(sizeof(std::size_t) == sizeof(std::int64_t), "counts travel as int64");

RowCall call_of(std::span<const TableRows> tables, const RowOptions& options) {
  RowCall call{.tables = {}, .options = options};
  for (const TableRows& each : tables) call.tables.push_back(each.table);
  return call;
}

/// Errors: UsageError, unless such rows can be summed so.
void require_valid(std::string_view name, const RowCall& call, std::span<const TableRows> tables) {
  const auto require = [&](bool condition, std::string_view what) {
    if (!condition) throw UsageError(fmt::format("'{}': {}", name, what));
  };
  require(!tables.empty(), "there are no tables");
  const RowOptions& options = call.options;
  const DType dtype = call.tables.front().dtype;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (const std::string problem = problem_with(tables[i]); !problem.empty()) {
      require(tables.size() > 1, problem);
      throw UsageError(fmt::format("table {} of '{}': {}", i, name, problem));
    }
    const DType other = tables[i].table.dtype;
    if (other == dtype) continue;
    throw UsageError(fmt::format("'{}': tables of {} and of {}; those of one call have one dtype",
                                 name, to_string(dtype), to_string(other)));
  }
  check_reduction(name, {options.op, options.scales}, dtype);
  require(is_number(dtype), "rows are of numbers");
  require(options.op == ReduceOp::kSum || options.op == ReduceOp::kAverage,
          "rows are combined by sum or average");
  require(options.exchange != RowForm::kTable || options.result != RowForm::kRows,
          "a table that is exchanged does not tell which rows the result has");
}

}  // namespace

RowReduction::RowReduction(const PlanInputs& inputs, std::string_view name,
                           std::span<const TableRows> tables, const RowOptions& options,
                           std::span<RowSums> results)
    : inputs_(inputs),
      call_(call_of(tables, options)),
      name_(name.empty() ? to_string(call_) : name),
      calls_(pool_, inputs.rank, inputs.grid.world_size()) {
  require_valid(name_, call_, tables);
  sums_->reserve(tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    sums_->emplace_back(inputs_, tables[i], options, results[i]);
  }
}

CallSequence::Stage RowReduction::next() {
  switch (phase_) {
    case Phase::kBegin:
      return agree();
    case Phase::kAgreed:
      return call_.options.exchange == RowForm::kTable ? exchange() : count();
    case Phase::kCounted:
      for (TableSum& sum : *sums_) sum.choose();
      return exchange();
    case Phase::kSent:
      return sum_up();
    case Phase::kSummed:
      return share();
    case Phase::kGathered:
      for (TableSum& sum : *sums_) sum.finish();
      break;
    case Phase::kOver:
      break;
  }
  phase_ = Phase::kOver;
  return {};
}

std::vector<RowSums> RowReduction::take() {
  std::vector<RowSums> results;
  results.reserve(sums_->size());
  for (TableSum& sum : *sums_) results.push_back(sum.take());
  return results;
}

CallSequence::Stage RowReduction::agree() {
  phase_ = Phase::kAgreed;
  Buffers descriptions;
  for (TableSum& sum : *sums_) descriptions.push_back(sum.describe());
  auto operation = calls_.grouped(OperationKind::kAllGather, name_,
                                  {.dtype = DType::kInt64, .each = descriptions});
  operation->rows = call_;
  operation->memory = sums_;
  return {std::move(operation)};
}

CallSequence::Stage RowReduction::count() {
  phase_ = Phase::kCounted;
  Buffers counts;
  for (TableSum& sum : *sums_) counts.push_back(sum.count());
  return {step(OperationKind::kAllGather, "counts", DType::kInt64, counts)};
}

CallSequence::Stage RowReduction::exchange() {
  Buffers indices, rows, tables;
  for (TableSum& sum : *sums_) {
    if (sum.exchanges_rows()) {
      const TableSum::IndicesAndRows sent = sum.send();
      indices.push_back(sent.indices);
      rows.push_back(sent.rows);
    } else {
      tables.push_back(sum.spread());
    }
  }
  phase_ = rows.empty() ? Phase::kGathered : Phase::kSent;
  Stage stage;
  if (!rows.empty()) {
    stage.push_back(step(OperationKind::kAllToAll, "indices to owners", DType::kInt64, indices));
    stage.push_back(step(OperationKind::kAllToAll, "rows to owners", dtype(), rows));
  }
  if (!tables.empty()) {
    const RowOptions& options = call_.options;
    stage.push_back(step(OperationKind::kAllReduce, "table", dtype(), tables,
                         {options.op, {.after = options.scales.after}}));
  }
  return stage;
}

CallSequence::Stage RowReduction::sum_up() {
  phase_ = Phase::kSummed;
  Buffers numbers;
  for (TableSum& sum : *sums_) {
    if (sum.exchanges_rows()) numbers.push_back(sum.sum_up());
  }
  return {step(OperationKind::kAllGather, "sums", DType::kInt64, numbers)};
}

CallSequence::Stage RowReduction::share() {
  phase_ = Phase::kGathered;
  Buffers indices, rows;
  for (TableSum& sum : *sums_) {
    if (!sum.exchanges_rows()) continue;
    const TableSum::IndicesAndRows shared = sum.share();
    indices.push_back(shared.indices);
    rows.push_back(shared.rows);
  }
  return {step(OperationKind::kAllGather, "indices", DType::kInt64, indices),
          step(OperationKind::kAllGather, "rows", dtype(), rows)};
}

std::shared_ptr<Operation> RowReduction::step(OperationKind kind, std::string_view what,
                                              DType dtype, const Buffers& buffers,
                                              const Reduction& reduction) const {
  // No step's name ends in another one's, so steps of different calls have different names.
  auto operation = calls_.grouped(kind, fmt::format("{}: {}", name_, what),
                                  {.dtype = dtype, .each = buffers}, 0, reduction);
  operation->is_step = true;
  operation->memory = sums_;
  return operation;
}

}  // namespace kolo
