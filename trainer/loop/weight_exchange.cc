#include "trainer/loop/weight_exchange.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/errors.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

std::optional<std::size_t> ExchangeTimes::begins(std::uint64_t step) const {
  if (step == 0) return std::nullopt;
  const std::uint64_t in_cycle = (step - 1) % every + 1;
  for (std::size_t fragment = 0; fragment < fragments; ++fragment) {
    if (in_cycle == (fragment + 1) * every / fragments) return fragment;
  }
  return std::nullopt;
}

std::optional<std::size_t> ExchangeTimes::under_way(std::uint64_t step) const {
  for (std::size_t ago = 0; ago < overlap && ago < step; ++ago) {
    if (const auto fragment = begins(step - ago)) return fragment;
  }
  return std::nullopt;
}

WeightExchange::WeightExchange(Runtime& runtime, ParameterSet& parameters, const Options& options)
    : parameters_(parameters),
      outer_(options.outer),
      agreed_(parameters.element_count()),
      velocity_(outer_.momentum > 0.0f ? agreed_.size() : 0) {
  if (options.fragments > parameters.size()) {
    throw_config_error(fmt::format("--fragments {}: the model has {} tensors, which stay whole",
                                   options.fragments, parameters.size()));
  }
  make_fragments(options.fragments);
  const std::size_t largest = std::ranges::max(fragments_, {}, &Fragment::count).count;
  begun_.resize(largest);
  memory_ = runtime.allocate(largest * sizeof(float));
  moved_ = std::span(reinterpret_cast<float*>(memory_.get()), largest);
  for (const Fragment& fragment : fragments_) {
    std::vector<GradientSpec> movements;
    each_parameter(fragment, [&](const Parameter& parameter, std::size_t begin) {
      movements.push_back({.name = parameter.name(),
                           .shape = parameter.shape(),
                           .data = moved_.subspan(begin, parameter.size())});
    });
    sets_.push_back(runtime.register_gradients(fmt::format("weights {}", sets_.size()),
                                               std::move(movements),
                                               {.compression = options.compression}));
  }
}

void WeightExchange::make_fragments(std::size_t number) {
  // A fragment ends with the tensor that completes its share of the elements. It ends earlier if
  // the later fragments need the remaining tensors, one each.
  Fragment fragment;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    fragment.last = i + 1;
    fragment.count += parameters_[i].size();
    const std::size_t made = fragments_.size() + 1;
    const std::size_t end = fragment.begin + fragment.count;
    const bool has_share = end * number >= made * agreed_.size();
    const bool must_end = parameters_.size() - fragment.last == number - made;
    if (made < number ? !has_share && !must_end : end < agreed_.size()) continue;
    fragments_.push_back(fragment);
    fragment = {.first = i + 1, .last = i + 1, .begin = end, .count = 0};
  }
}

template <typename Use>
void WeightExchange::each_parameter(const Fragment& of, const Use& use) {
  std::size_t begin = 0;
  for (std::size_t i = of.first; i < of.last; ++i) {
    use(parameters_[i], begin);
    begin += parameters_[i].size();
  }
}

void WeightExchange::agree() {
  for (const Fragment& fragment : fragments_) {
    each_parameter(fragment, [&](const Parameter& parameter, std::size_t begin) {
      std::ranges::copy(parameter.value(), agreed(fragment).subspan(begin).begin());
    });
  }
}

void WeightExchange::begin(std::size_t number) {
  check(!under_way_, "an exchange of weights begins when the one before has ended");
  const Fragment& fragment = fragments_[number];
  const std::span<float> moved = moved_.first(fragment.count);
  std::ranges::copy(agreed(fragment), moved.begin());
  each_parameter(fragment, [&](const Parameter& parameter, std::size_t begin) {
    const std::span<const float> value = parameter.value();
    std::ranges::copy(value, std::span(begun_).subspan(begin).begin());
    add_scaled(value, -1.0f, moved.subspan(begin, value.size()));
  });
  GradientSet& set = sets_[number];
  for (std::size_t i = 0; i < set.size(); ++i) set.ready(i);
  under_way_ = number;
  is_averaging_ = true;
}

void WeightExchange::finish() {
  const Fragment& fragment = fragments_[under_way_.value()];
  await_mean();
  under_way_.reset();
  const std::span<const float> moved = moved_.first(fragment.count);
  if (velocity_.empty()) {
    add_scaled(moved, -outer_.lr, agreed(fragment));
  } else {
    sgd_update({.lr = outer_.lr,
                .momentum = outer_.momentum,
                .weight_decay = 0.0f,
                .gradient_scale = 1.0f,
                .nesterov = true},
               moved, std::span(velocity_).subspan(fragment.begin, fragment.count),
               agreed(fragment));
  }
  // The rank keeps its movement during the exchange, which is exactly zero without overlap.
  each_parameter(fragment, [&](Parameter& parameter, std::size_t begin) {
    const std::span<float> value = parameter.value();
    add_scaled(std::span(begun_).subspan(begin, value.size()), -1.0f, value);
    add(agreed(fragment).subspan(begin, value.size()), value, value);
  });
}

void WeightExchange::await_mean() {
  if (is_averaging_) sets_[*under_way_].wait();
  is_averaging_ = false;
}

std::vector<CompressionStats> WeightExchange::compression_stats() const {
  std::vector<CompressionStats> all;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    if (is_averaging_ && i == under_way_) continue;
    std::ranges::move(sets_[i].compression_stats(), std::back_inserter(all));
  }
  return all;
}

void WeightExchange::visit_state(StateVisitor& visitor) {
  if (under_way_) await_mean();
  const Shape all{agreed_.size()};
  visitor.shared("exchange.agreed", all, agreed_);
  if (!velocity_.empty()) visitor.shared("exchange.velocity", all, velocity_);
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    std::vector<std::vector<std::byte>> residuals = {sets_[i].save_compression()};
    visitor.bytes_of_ranks(fmt::format("exchange.compression {}", i), residuals);
    if (visitor.is_restoring()) sets_[i].load_compression(residuals.front());
  }
  if (!under_way_) return;
  const std::size_t count = fragments_[*under_way_].count;
  visitor.shared("exchange.moved", Shape{count}, moved_.first(count));
  visitor.own("exchange.begun", Shape{count}, std::span(begun_).first(count));
}

}  // namespace kolo::trainer
