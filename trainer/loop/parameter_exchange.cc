#include "trainer/loop/parameter_exchange.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/gradients/gradient_compression.h"

namespace kolo::trainer {

GradientSet register_gradients(Group& group, const ParameterSet& parameters,
                               const GradientStorage& storage, GradientOptions options) {
  std::vector<GradientSpec> specs;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].rows() != nullptr) continue;
    GradientSpec& spec = specs.emplace_back();
    spec.name = parameters[i].name();
    spec.shape = parameters[i].shape();
    spec.dtype = storage.dtype;
    spec.memory = storage.memory;
  }
  return group.register_gradients("model", std::move(specs), std::move(options));
}

void visit_compression(StateVisitor& visitor, GradientSet& gradients) {
  std::vector<std::vector<std::byte>> compression = {gradients.save_compression()};
  visitor.bytes_of_ranks("compression", compression);
  if (!visitor.is_restoring()) return;
  if (std::ranges::all_of(compression, [](const auto& bytes) { return bytes.empty(); })) {
    // The checkpoint belongs to a job with shards, which had no compression.
  } else if (visitor.has_other_ranks()) {
    gradients.remap_compression(compression);
  } else {
    gradients.load_compression(compression.front());
  }
}

std::vector<bool> need_directions(const ParameterSet& parameters, const GradientSet& gradients,
                                  const std::string& compression) {
  const CompressionRules rules = CompressionRules::parse(compression);
  std::vector<bool> need;
  std::size_t place = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    need.push_back(parameters[i].rows() == nullptr && gradients.may_become_sparse(place++) &&
                   !rules.spec_of(parameters[i].name()).method->is_close);
  }
  return need;
}

Adaptive adaptive_role(const GradientSet& gradients, std::size_t place) {
  if (gradients.is_sparse(place) && !gradients.is_warming_up(place)) return Adaptive::kTurns;
  return gradients.may_become_sparse(place) ? Adaptive::kObserves : Adaptive::kNothing;
}

void broadcast_values(Group& group, ParameterSet& parameters) {
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    tickets.push_back(
        group.broadcast("parameter " + parameters[i].name(), parameters[i].value(), 0));
  }
  for (Buffer& buffer : parameters.buffers()) {
    tickets.push_back(group.broadcast("buffer " + buffer.name, buffer.value.span(), 0));
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

void RowExchange::begin(std::size_t parameter) {
  const Parameter& table = parameters_[parameter];
  const RowGradient& gradient = *table.rows();
  Sum& sum = sums_[parameter];
  const TableRows rows{
      .table = {.height = table.shape()[0], .width = gradient.width(), .dtype = DType::kFloat32},
      .indices = gradient.indices(),
      .rows = gradient.values().data()};
  sum.ticket = group_.sparse_all_reduce("rows of " + table.name(), rows, {.op = ReduceOp::kAverage},
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
  const RowSums& sums = sum.memory.front();
  const BufferView rows = sums.rows();
  const std::span<const float> averages(static_cast<const float*>(rows.data), rows.count);
  RowGradient& gradient = *parameters_[parameter].rows();
  const std::size_t width = gradient.width();
  gradient.clear();
  for (std::size_t i = 0; i < averages.size() / width; ++i) {
    const std::span<const float> row = averages.subspan(i * width, width);
    if (std::ranges::all_of(row, [](float value) { return value == 0.0f; })) continue;
    const auto index = sums.is_table() ? static_cast<std::int64_t>(i) : sums.indices()[i];
    gradient.append(index, row, 1.0f);
  }
}

}  // namespace kolo::trainer
