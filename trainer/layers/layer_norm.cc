#include "trainer/layers/layer_norm.h"

#include "trainer/kernels/normalize.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
