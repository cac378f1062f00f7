#include "runtime/calls/row_sums/row_reduction.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "fusion/overlap.h"

namespace kolo {
namespace {

RowCall call_of(Span<const TableRows> tables, const RowOptions& options) {
  RowCall call{.tables = {}, .options = options};
  for (const TableRows& each : tables) call.tables.push_back(each.table);
  return call;
}

/// Returns why the rows of a table cannot be summed on this rank; empty if they can.
std::string problem_on(const RowDevice& device, const TableRows& given) {
  std::string problem = problem_with(given);
  if (problem.empty() && given.table.memory == MemoryKind::kDevice && device.device != nullptr) {
    const std::size_t bytes = given.indices.size() * given.table.row_bytes();
    problem = device.device->problem_with(given.rows, bytes);
    if (!problem.empty()) problem = "the rows are in " + problem;
  }
  return problem;
}

/// Throws UsageError if the call cannot sum these rows.
void require_valid(std::string_view name, const RowCall& call, Span<const TableRows> tables,
                   const RowDevice& device) {
  const auto require = [&](bool condition, std::string_view what) {
    if (!condition) throw UsageError(fmt::format("'{}': {}", name, what));
  };
  require(!tables.empty(), "there are no tables");
  const RowOptions& options = call.options;
  const DType dtype = call.tables.front().dtype;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (const std::string problem = problem_on(device, tables[i]); !problem.empty()) {
      require(tables.size() > 1, problem);
      throw UsageError(fmt::format("table {} of '{}': {}", i, name, problem));
    }
    require(tables[i].table.memory == call.tables.front().memory,
            "tables of one call are in memory of one kind");
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

/// Checks that no rows are in the memory of former results, which this call overwrites, and that no
/// two results share memory.
void require_apart(std::string_view name, Span<const TableRows> tables,
                   Span<const RowSums> results) {
  std::vector<UsedMemory> used;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const BufferView former = results[i].rows();
    used.push_back({former.data, former.bytes(), i, true});
    const std::size_t bytes = tables[i].indices.size() * tables[i].table.row_bytes();
    used.push_back({tables[i].rows, bytes, i, false});
  }
  const auto overlap = find_overlap(std::move(used));
  if (!overlap) return;
  const auto [first, second] = *overlap;
  const std::string which = first == second ? fmt::format("table {}", first)
                                            : fmt::format("tables {} and {}", first, second);
  throw UsageError(fmt::format(
      "'{}': rows of {} are in memory of an earlier result that is reused; pass another result",
      name, which));
}

}  // namespace

RowReduction::RowReduction(const PlanInputs& inputs, std::string_view name,
                           Span<const TableRows> tables, const RowOptions& options,
                           Span<RowSums> results, const RowDevice& device)
    : inputs_(inputs),
      call_(call_of(tables, options)),
      name_(name.empty() ? to_string(call_) : name),
      calls_(pool_, inputs.rank, inputs.grid.world_size()) {
  require_valid(name_, call_, tables, device);
  require_apart(name_, tables, results);
  sums_->reserve(tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    sums_->emplace_back(inputs_, tables[i], options, results[i], device);
  }
}

CompositeOp::Stage RowReduction::next() {
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

bool RowReduction::is_settled() const { return std::ranges::all_of(*sums_, &TableSum::is_ready); }

std::vector<RowSums> RowReduction::take() {
  std::vector<RowSums> results;
  results.reserve(sums_->size());
  for (TableSum& sum : *sums_) results.push_back(sum.take());
  return results;
}

CompositeOp::Stage RowReduction::agree() {
  phase_ = Phase::kAgreed;
  std::vector<Tensor> descriptions;
  for (TableSum& sum : *sums_) descriptions.push_back(sum.describe());
  auto operation = calls_.make(OperationKind::kAllGather, name_, descriptions);
  operation->rows = call_;
  operation->kept = sums_;
  return {std::move(operation)};
}

CompositeOp::Stage RowReduction::count() {
  phase_ = Phase::kCounted;
  std::vector<Tensor> counts;
  for (TableSum& sum : *sums_) counts.push_back(sum.count());
  return {step(OperationKind::kAllGather, "counts", counts)};
}

CompositeOp::Stage RowReduction::exchange() {
  std::vector<Tensor> indices;
  Rows rows, tables;
  for (TableSum& sum : *sums_) {
    if (sum.exchanges_rows()) {
      const TableSum::IndicesAndRows sent = sum.send();
      indices.push_back(sent.indices);
      rows.add(sent.rows, sum.ready());
    } else {
      const Tensor table = sum.spread();
      tables.add(table, sum.ready());
    }
  }
  phase_ = indices.empty() ? Phase::kGathered : Phase::kSent;
  Stage stage;
  if (!indices.empty()) {
    stage.push_back(step(OperationKind::kAllToAll, "indices to owners", indices));
  }
  append(stage, OperationKind::kAllToAll, "rows to owners", rows);
  const RowOptions& options = call_.options;
  append(stage, OperationKind::kAllReduce, "table", tables,
         {options.op, {.after = options.scales.after}});
  return stage;
}

CompositeOp::Stage RowReduction::sum_up() {
  phase_ = Phase::kSummed;
  std::vector<Tensor> numbers;
  for (TableSum& sum : *sums_) {
    if (sum.exchanges_rows()) numbers.push_back(sum.sum_up());
  }
  return {step(OperationKind::kAllGather, "sums", numbers)};
}

CompositeOp::Stage RowReduction::share() {
  phase_ = Phase::kGathered;
  std::vector<Tensor> indices;
  Rows rows;
  for (TableSum& sum : *sums_) {
    if (!sum.exchanges_rows()) continue;
    const TableSum::IndicesAndRows shared = sum.share();
    indices.push_back(shared.indices);
    rows.add(shared.rows, sum.ready());
  }
  Stage stage{step(OperationKind::kAllGather, "indices", indices)};
  append(stage, OperationKind::kAllGather, "rows", rows);
  return stage;
}

void RowReduction::Rows::add(const Tensor& tensor, std::shared_ptr<const Event> behind) {
  each.push_back(tensor);
  ready.push_back(std::move(behind));
}

void RowReduction::append(Stage& stage, OperationKind kind, std::string_view what, const Rows& rows,
                          const Reduction& reduction) const {
  if (rows.each.empty()) return;
  if (any_table().memory == MemoryKind::kHost) {
    stage.push_back(step(kind, what, rows.each, reduction));
    return;
  }
  for (std::size_t i = 0; i < rows.each.size(); ++i) {
    stage.push_back(step(kind, fmt::format("{} of {}", what, i), rows.each[i], reduction));
    stage.back()->ready = rows.ready[i];
  }
}

std::shared_ptr<Operation> RowReduction::step(OperationKind kind, std::string_view what,
                                              const Tensors& tensors,
                                              const Reduction& reduction) const {
  // No name of a step is a suffix of another, so steps of different calls have different names.
  auto operation = calls_.make(kind, fmt::format("{}: {}", name_, what), tensors, 0, reduction);
  operation->space = NameSpace::kStep;
  operation->kept = sums_;
  return operation;
}

}  // namespace kolo
