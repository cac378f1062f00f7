#include "trainer/parameter_set.h"

#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <xxhash.h>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

bool has_lost_numbers(std::span<const float> values) {
  return !std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

Parameter::Parameter(ParameterSet& owner, std::size_t index, std::string name, Shape whole,
                     const Part& part)
    : owner_(owner),
      index_(index),
      name_(std::move(name)),
      whole_shape_(std::move(whole)),
      part_(part),
      shape_(part.shape_of(whole_shape_)),
      own_value_(shape_),
      value_(own_value_.span()) {}

void Parameter::bind_value(std::span<float> memory) {
  check(memory.size() == size(), "memory of values has the size of its parameter: " + name_);
  std::ranges::copy(value(), memory.begin());
  value_ = memory;
  own_value_ = Tensor();
}

void Parameter::unbind_value() {
  Tensor own(shape_);
  own.assign(value());
  own_value_ = std::move(own);
  value_ = own_value_.span();
}

void Parameter::own_shard(ElementRange range, std::span<float> gradient) {
  check(range.begin + range.count <= size() && range.count == gradient.size(),
        "a shard lies within its parameter: " + name_);
  shard_ = Shard{range, gradient};
}

void Parameter::bind_gradient(std::span<float> memory) {
  check(memory.size() == size(), "gradient memory has the size of its parameter: " + name_);
  gradient_ = memory;
}

void Parameter::bind_gradient(std::span<BFloat16> memory) {
  check(memory.size() == size(), "gradient memory has the size of its parameter: " + name_);
  rounded_ = memory;
}

void Parameter::unbind_gradient() {
  gradient_ = {};
  rounded_ = {};
  sums_ = {};
}

std::span<float> Parameter::gradient() {
  if (!gradient_.empty() || rows_) return gradient_;
  if (!rounded_.empty()) {
    sums_ = Tensor(shape());
    gradient_ = sums_.span();
  } else if (owner_.gradient_needed_) {
    owner_.gradient_needed_(index_);
  }
  return gradient_;
}

Contribution Parameter::contribution(DType offered) {
  is_rounded_ = !rounded_.empty() && offered == DType::kBFloat16 && users_ * owner_.passes_ == 1;
  if (is_rounded_) return {rounded_.data(), DType::kBFloat16, Into::kOverwrite};
  return {gradient().data(), DType::kFloat32, next_contribution()};
}

void Parameter::widen(std::size_t begin, std::span<float> out) const {
  trainer::widen(rounded_.subspan(begin, out.size()), out);
}

void Parameter::contributed() {
  if (++contributions_ < users_ * owner_.passes_) return;
  contributions_ = 0;
  if (!rounded_.empty() && !is_rounded_) round_to_bfloat16(gradient_, rounded_);
  if (owner_.gradient_ready_) owner_.gradient_ready_(index_);
}

void Parameter::begin_rows() {
  if (next_contribution() == Into::kAdd) return;
  if (rows_) {
    rows_->clear();
  } else {
    std::ranges::fill(gradient(), 0.0f);
  }
}

void Parameter::add_to_row(std::int32_t index, std::span<const float> values, float factor) {
  if (rows_) {
    rows_->append(index, values, factor);
  } else {
    add_scaled(values, factor, row_of(gradient_, index));
  }
}

Parameter& ParameterSet::add(std::string name, Shape shape, Initial initial, const Part& part) {
  if (const Parameter* const known = find(name)) {
    check(known->whole_shape() == shape, "a parameter has one shape: " + name);
    return parameters_[known->index()];
  }
  Parameter& parameter =
      parameters_.emplace_back(*this, parameters_.size(), std::move(name), std::move(shape), part);
  if (!seed_) return parameter;
  Random random(*seed_, left_out_ + parameter.index());
  constexpr float kHalfWidth = 1.7320508f;  // half width of a distribution of deviation 1
  Tensor whole(part.is_whole() ? Shape{0} : parameter.whole_shape());
  const std::span<float> values = part.is_whole() ? parameter.value() : whole.span();
  for (float& value : values) {
    value = initial.mean;
    if (initial.deviation > 0.0f) {
      value += initial.deviation * kHalfWidth * (2.0f * random.uniform() - 1.0f);
    }
  }
  if (!part.is_whole()) part.take(parameter.whole_shape(), values, parameter.value());
  return parameter;
}

Parameter& ParameterSet::add_table(std::string name, std::size_t height, std::size_t width,
                                   Initial initial) {
  Parameter& table = add(std::move(name), {height, width}, initial);
  table.is_table_ = true;
  return table;
}

void ParameterSet::use_rows() {
  for (Parameter& parameter : parameters_) {
    if (parameter.is_table_) parameter.rows_.emplace(parameter.shape()[1]);
  }
}

Buffer& ParameterSet::add_buffer(std::string name, Shape shape, float value) {
  Buffer& buffer = buffers_.emplace_back(Buffer{std::move(name), Tensor(std::move(shape))});
  buffer.value.fill(value);
  return buffer;
}

std::size_t ParameterSet::element_count() const {
  std::size_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.size();
  return count;
}

const Parameter* ParameterSet::find(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  return found == parameters_.end() ? nullptr : &*found;
}

void ParameterSet::own_gradients() {
  for (Parameter& parameter : parameters_) {
    if (parameter.rows() != nullptr) continue;
    parameter.bind_gradient(owned_gradients_.emplace_back(parameter.shape()).span());
  }
}

void ParameterSet::copy_values(const ParameterSet& other) {
  check(other.size() == size() && other.buffers().size() == buffers_.size(),
        "parameters are copied between models of the same shape");
  for (std::size_t i = 0; i < size(); ++i) {
    check(other[i].shape() == parameters_[i].shape(), "shapes differ: " + other[i].name());
    std::copy(other[i].value().begin(), other[i].value().end(), parameters_[i].value().begin());
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].value.assign(other.buffers()[i].value.span());
  }
}

std::uint64_t ParameterSet::hash() const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  ensure(state != nullptr, "no memory for a hash");
  XXH3_64bits_reset(state.get());
  for (const Parameter& parameter : parameters_) {
    XXH3_64bits_update(state.get(), parameter.value().data(), parameter.value().size_bytes());
  }
  for (const Buffer& buffer : buffers_) {
    XXH3_64bits_update(state.get(), buffer.value.data(), buffer.value.span().size_bytes());
  }
  return XXH3_64bits_digest(state.get());
}

std::string first_not_finite(const ParameterSet& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (has_lost_numbers(parameters[i].value())) {
      return fmt::format("the weights of '{}'", parameters[i].name());
    }
  }
  for (std::size_t i = parameters.size(); i-- > 0;) {
    bool has_lost = false;
    parameters[i].visit_gradient([&](std::size_t, std::span<const float> part) {
      has_lost = has_lost || has_lost_numbers(part);
    });
    if (has_lost) {
      return fmt::format("the gradient of '{}'", parameters[i].name());
    }
  }
  return {};
}

void throw_diverged(const std::string& what, const ParameterSet& parameters) {
  const std::string first = first_not_finite(parameters);
  throw DivergedError(
      Error{.verb = {},
            .bucket = {},
            .what = fmt::format("training diverged: {} not finite{}; try a lower --lr, more "
                                "--warmup-steps or a --clip-norm, or --loss-scale dynamic if a "
                                "step computes or sends float16",
                                what, first.empty() ? "" : ", first " + first)});
}

}  // namespace kolo::trainer
