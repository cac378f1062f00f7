#include "trainer/layers/normalization.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kNewShare = 0.1;  // weight of a pass in the running statistics

void mix_in(float& running, double value) {
  running = static_cast<float>((1.0 - kNewShare) * running + kNewShare * value);
}

void contribute(Parameter& parameter, std::span<const double> sums) {
  const std::span<float> gradient = parameter.gradient();
  if (parameter.next_contribution() == Into::kOverwrite) std::ranges::fill(gradient, 0.0f);
  for (std::size_t j = 0; j < gradient.size(); ++j) gradient[j] += static_cast<float>(sums[j]);
}

}  // namespace

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, std::size_t rows,
                     std::size_t width)
    : gain_(parameters.add(name + ".gain", {width}, {.mean = 1.0f})),
      bias_(parameters.add(name + ".bias", {width}, {})),
      output_({rows, width}),
      mean_({rows}),
      rstd_({rows}),
      input_gradient_({rows, width}) {}

std::span<const float> LayerNorm::forward(std::span<const float> input, const Pass&) {
  const std::size_t rows = input.size() / gain_.size();
  input_ = input;
  layer_norm(input, std::as_const(gain_).value(), std::as_const(bias_).value(), output_.span(),
             mean_.span().first(rows), rstd_.span().first(rows));
  return output_.span().first(input.size());
}

std::span<const float> LayerNorm::backward(std::span<const float> output_gradient) {
  layer_norm_backward(output_gradient, input_, gain_.value(), mean_.span(), rstd_.span(),
                      input_gradient_.span(), gain_.gradient(), bias_.gradient(),
                      gain_.next_contribution());
  gain_.contributed();
  bias_.contributed();
  return input_gradient_.span();
}

BatchNorm::BatchNorm(ParameterSet& parameters, const std::string& name, const Options& options)
    : options_(options),
      name_(name),
      gain_(parameters.add(name + ".gain", {options.channels}, {.mean = 1.0f})),
      bias_(parameters.add(name + ".bias", {options.channels}, {})),
      running_mean_(parameters.add_buffer(name + ".running_mean", {options.channels}, 0.0f)),
      running_variance_(
          parameters.add_buffer(name + ".running_variance", {options.channels}, 1.0f)),
      output_({options.samples * options.rows_per_sample, options.channels}),
      input_gradient_({options.samples * options.rows_per_sample, options.channels}),
      mean_({options.channels}),
      rstd_({options.channels}),
      a_({options.channels}),
      b_({options.channels}),
      c_({options.channels}) {}

std::span<const float> BatchNorm::forward(std::span<const float> input, const Pass& pass) {
  input_ = input;
  const std::size_t channels = options_.channels;
  if (pass.is_training) {
    rows_ = std::min(pass.samples, options_.samples) * options_.rows_per_sample;
    measure(input.first(rows_ * channels));
  } else {
    for (std::size_t j = 0; j < channels; ++j) {
      const double variance = running_variance_.value.span()[j];
      mean_.span()[j] = running_mean_.value.span()[j];
      rstd_.span()[j] = static_cast<float>(1.0 / std::sqrt(variance + kEpsilon));
    }
  }
  for (std::size_t j = 0; j < channels; ++j) {
    a_.span()[j] = gain_.value()[j] * rstd_.span()[j];
    b_.span()[j] = bias_.value()[j] - mean_.span()[j] * a_.span()[j];
  }
  scale_and_shift_columns(input, a_.span(), b_.span(), output_.span());
  return output_.span();
}

void BatchNorm::measure(std::span<const float> real_rows) {
  const std::size_t channels = options_.channels;
  // Sums of x - pivot and its square, later of x and x²; last, the number of rows.
  sums_.assign(2 * channels + 1, 0.0);
  const std::span<double> first(sums_.data(), channels);
  const std::span<double> second(sums_.data() + channels, channels);
  if (rows_ > 0) {
    const std::span<const float> pivot = real_rows.first(channels);
    add_column_moments(real_rows, pivot, first, second);
    for (std::size_t j = 0; j < channels; ++j) {
      const double p = pivot[j];
      second[j] += p * (2.0 * first[j] + p * static_cast<double>(rows_));
      first[j] += p * static_cast<double>(rows_);
    }
  }
  sums_.back() = static_cast<double>(rows_);
  sum(".statistics", sums_);
  global_rows_ = sums_.back();
  for (std::size_t j = 0; j < channels; ++j) {
    // Without rows, any finite values serve, because there are no gradients.
    const double mean = global_rows_ > 0.0 ? first[j] / global_rows_ : 0.0;
    const double variance =
        global_rows_ > 0.0 ? std::max(0.0, second[j] / global_rows_ - mean * mean) : 1.0;
    mean_.span()[j] = static_cast<float>(mean);
    rstd_.span()[j] = static_cast<float>(1.0 / std::sqrt(variance + kEpsilon));
    // An infinity or NaN would stay in running values for ever, although its step is skipped.
    if (global_rows_ < 2.0 || !std::isfinite(first[j] + second[j])) continue;
    mix_in(running_mean_.value.span()[j], mean);
    mix_in(running_variance_.value.span()[j], variance * global_rows_ / (global_rows_ - 1.0));
  }
}

// With n = (x - mean) rstd, and averages over all rows that share statistics:
//   dx = gain rstd (dy - average(dy) - n average(dy n)),   dgain = sum(dy n),   dbias = sum(dy).
std::span<const float> BatchNorm::backward(std::span<const float> output_gradient) {
  const std::size_t channels = options_.channels;
  const std::size_t real = rows_ * channels;
  sums_.assign(2 * channels, 0.0);
  const std::span<double> sums(sums_.data(), channels);
  const std::span<double> slopes(sums_.data() + channels, channels);
  add_normalized_slopes(output_gradient.first(real), input_.first(real), mean_.span(), rstd_.span(),
                        sums, slopes);
  contribute(gain_, slopes);
  contribute(bias_, sums);
  gain_.contributed();
  bias_.contributed();
  sum(".gradients", sums_);
  for (std::size_t j = 0; j < channels && global_rows_ > 0.0; ++j) {
    const double rstd = rstd_.span()[j];
    const double a = static_cast<double>(gain_.value()[j]) * rstd;
    const double b = -a * rstd * slopes[j] / global_rows_;
    a_.span()[j] = static_cast<float>(a);
    b_.span()[j] = static_cast<float>(b);
    c_.span()[j] =
        static_cast<float>(-a * sums[j] / global_rows_ - b * static_cast<double>(mean_.span()[j]));
  }
  combine_columns(output_gradient.first(real), input_.first(real), a_.span(), b_.span(), c_.span(),
                  input_gradient_.span().first(real));
  std::ranges::fill(input_gradient_.span().subspan(real), 0.0f);
  return input_gradient_.span();
}

void BatchNorm::sum(const char* what, std::span<double> values) const {
  if (options_.sum_over_ranks) options_.sum_over_ranks(name_ + what, values);
}

}  // namespace kolo::trainer
