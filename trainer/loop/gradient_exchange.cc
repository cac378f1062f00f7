#include "trainer/loop/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/kernels/kernels.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/mesh/mesh.h"

namespace kolo::trainer {

namespace {

bool has_rows(const Parameter& parameter) { return parameter.rows() != nullptr; }

void bind(Parameter& parameter, const BufferView& gradient) {
  if (gradient.dtype == DType::kBFloat16) {
    parameter.bind_gradient(std::span(static_cast<BFloat16*>(gradient.data), gradient.count));
  } else {
    parameter.bind_gradient(std::span(static_cast<float*>(gradient.data), gradient.count));
  }
}

/// The index of each parameter's gradient in the GradientSet, which has all gradients except rows.
std::vector<std::size_t> places_of(const ParameterSet& parameters) {
  std::vector<std::size_t> places;
  std::size_t next = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    places.push_back(next);
    if (!has_rows(parameters[i])) ++next;
  }
  return places;
}

}  // namespace

GradientExchange::GradientExchange(Group& group, ParameterSet& parameters,
                                   std::unique_ptr<Optimizer> optimizer, const Options& options,
                                   const Clock& clock)
    : options_(options),
      group_(&group),
      parameters_(parameters),
      shares_(parameters, static_cast<std::size_t>(group.size()), options.norm_bytes),
      optimizer_(std::move(optimizer)),
      gate_(options.gate),
      clock_(clock),
      places_(places_of(parameters)),
      gradients_(register_in(group, std::nullopt)),
      is_sparse_(parameters.size()),
      corrects_momentum_(parameters.size()),
      roles_(parameters.size()),
      needs_direction_(need_directions(parameters, gradients_, options.compression)) {
  const auto adaptation = optimizer_->adaptation();
  if (TensorNorms* const norms = optimizer_->norms()) {
    norms->add_up_by([this](std::size_t parameter) { return shares_.ranges(parameter); });
  }
  if (adaptation && std::ranges::count(needs_direction_, true) > 0) {
    directions_.emplace(parameters, *adaptation);
  }
  broadcast_values(group, parameters);
  bind_gradients();
  parameters.on_gradient_ready([this](std::size_t index) {
    scale_sparse(index, 1.0f / gate_.loss_scale());
    prepare(index);
    communicate([&] {
      if (has_rows(parameters_[index])) {
        rows_->begin(index);
      } else {
        gradients_.ready(places_[index]);
      }
    });
  });
}

GradientExchange::~GradientExchange() {
  parameters_.on_gradient_ready({});
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].unbind_gradient();
}

GradientSet GradientExchange::register_in(Group& group, std::optional<DType> wire_dtype) const {
  return register_gradients(
      group, parameters_, {.dtype = options_.gradient_dtype},
      {.wire_dtype = wire_dtype,
       .compression = options_.compression,
       .divisor = options_.counts_samples ? Divisor::kSamples : Divisor::kAllRanks});
}

void GradientExchange::bind_gradients() {
  rows_.emplace(*group_, parameters_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (has_rows(parameters_[i])) continue;
    bind(parameters_[i], gradients_.view(places_[i]));
  }
  begin_step();
}

void GradientExchange::average_over(Group& group) {
  group_ = &group;
  shares_ = ShardPlan(parameters_, static_cast<std::size_t>(group.size()), options_.norm_bytes);
  gradients_ = register_in(group, options_.gradient_dtype);
  bind_gradients();
}

void GradientExchange::visit_state(StateVisitor& visitor) {
  optimizer_->visit_state(visitor);
  gate_.visit_state(visitor);
  if (directions_) directions_->visit_state(visitor);
  visit_compression(visitor, gradients_);
  if (visitor.is_restoring()) begin_step();
}

void GradientExchange::take_part(const ParticipationWeight& weight) {
  participation_ = weight;
  if (weight.weight > 0.0) gradients_.set_samples(weight.weight);
}

UpdateMemory GradientExchange::memory() {
  return {.optimizer_bytes = bytes_of(*optimizer_), .gradient_bytes = plan().bytes};
}

void GradientExchange::await_averages() {
  communicate([&] {
    if (participation_.weight > 0.0) {
      gradients_.wait();
      rows_->finish();
    }
    // Ranks without samples participate in the other ranks' collectives, and so get the averages.
    if (participation_.leaves_out_ranks) group_->join();
  });
  for (std::size_t i = 0; i < parameters_.size(); ++i) scale_sparse(i, gate_.loss_scale());
}

UpdateVerdict GradientExchange::clip() {
  unscale_ = 1.0f / gate_.loss_scale();
  // Of a tensor group, the first rank counts the tensors that are equal on all ranks of the group.
  Mesh* const mesh = options_.mesh;
  const bool counts_whole = mesh == nullptr || mesh->is_first_of_tensor();
  const ShardSquares squares =
      squares_of(parameters_, shares_, static_cast<std::size_t>(group_->rank()), counts_whole);
  double norm = 0.0;
  communicate([&] { norm = norm_over_ranks(mesh == nullptr ? *group_ : mesh->world(), squares); });
  const UpdateVerdict verdict = gate_.judge(norm);
  if (verdict.has_diverged) throw_diverged("gradients are", parameters_);
  return verdict;
}

StepReport GradientExchange::update(float lr, const UpdateVerdict& verdict) {
  if (!verdict.is_skipped) update_all(lr, verdict.gradient_scale);
  begin_step();
  return {.gradient_norm = verdict.gradient_norm,
          .exposed = std::exchange(exposed_, Duration{0}),
          .is_skipped = verdict.is_skipped};
}

void GradientExchange::update_all(float lr, float gradient_scale) {
  const bool has_directions = std::ranges::count(roles_, Adaptive::kTurns) > 0;
  optimizer_->begin_step();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (roles_[i] == Adaptive::kObserves) directions_->observe_average(i, unscale_);
    update(i, lr, has_directions ? unscale_ : gradient_scale);
  }
  if (directions_) directions_->commit();
}

void GradientExchange::begin_step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (has_rows(parameters_[i])) continue;
    const std::size_t place = places_[i];
    is_sparse_[i] = gradients_.is_sparse(place);
    corrects_momentum_[i] = gradients_.corrects_momentum(place);
    if (corrects_momentum_[i]) require_momentum(i);
    if (directions_ && needs_direction_[i]) roles_[i] = adaptive_role(gradients_, place);
  }
}

void GradientExchange::prepare(std::size_t index) {
  if (roles_[index] == Adaptive::kTurns) {
    directions_->turn(index);
  } else if (roles_[index] == Adaptive::kObserves) {
    // `scale_sparse` has removed the loss scale from sparse gradients only.
    directions_->observe(index, is_sparse_[index] ? 1.0f : 1.0f / gate_.loss_scale());
  }
}

void GradientExchange::update(std::size_t index, float lr, float gradient_scale) {
  if (roles_[index] == Adaptive::kTurns || corrects_momentum_[index]) {
    optimizer_->follow(index, lr, gradient_scale);
  } else {
    optimizer_->update(index, lr, gradient_scale);
  }
}

void GradientExchange::require_momentum(std::size_t index) const {
  if (!directions_) {
    return trainer::require_momentum(gradients_.corrected_momentum(places_[index]),
                                     optimizer_->momentum(), parameters_[index].name());
  }
  throw_config_error(fmt::format(
      "dgc for '{}': it corrects the momentum of sgd; adamw sends directions instead, and has no "
      "momentum where they are sparse: leave dgc out, or choose --optimizer sgd",
      parameters_[index].name()));
}

void GradientExchange::scale_sparse(std::size_t index, float factor) {
  if (factor == 1.0f || !is_sparse_[index]) return;
  for (float& value : parameters_[index].gradient()) value *= factor;
}

}  // namespace kolo::trainer
