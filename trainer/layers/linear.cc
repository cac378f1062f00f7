#include "trainer/layers/linear.h"

#include "trainer/compute/gemm.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

Linear::Linear(ParameterSet& parameters, const std::string& name, const Options& options)
    : rows_(options.rows),
      inputs_(options.inputs),
      outputs_(options.outputs),
      weight_(
          parameters.add(name + ".weight", {outputs_, inputs_}, {.deviation = options.deviation})),
      bias_(&parameters.add(name + ".bias", {outputs_}, {})),
      output_({rows_, outputs_}),
      input_gradient_({options.input_gradient ? rows_ : 0, inputs_}) {}

Linear::Linear(Parameter& shared_weight, std::size_t rows)
    : rows_(rows),
      inputs_(shared_weight.shape()[1]),
      outputs_(shared_weight.shape()[0]),
      weight_(shared_weight),
      bias_(nullptr),
      output_({rows_, outputs_}),
      input_gradient_({rows_, inputs_}) {
  weight_.share();
}

std::span<const float> Linear::forward(std::span<const float> input, const Pass&) {
  input_ = input;
  // The bias is stored first and the product added to it, which saves a pass over the result.
  if (bias_ != nullptr) repeat_row(bias_->value(), output_.span());
  multiply(operand(input.data(), rows_, inputs_),
           transposed(operand(weight_.value().data(), outputs_, inputs_)),
           {output_.data(), rows_, outputs_, outputs_},
           bias_ != nullptr ? Into::kAdd : Into::kOverwrite);
  return output_.span();
}

std::span<const float> Linear::backward(std::span<const float> output_gradient) {
  const Operand dy = operand(output_gradient.data(), rows_, outputs_);
  multiply(transposed(dy), operand(input_.data(), rows_, inputs_),
           {weight_.gradient().data(), outputs_, inputs_, inputs_}, weight_.next_contribution());
  weight_.contributed();
  if (bias_ != nullptr) {
    sum_rows(output_gradient, bias_->gradient(), bias_->next_contribution());
    bias_->contributed();
  }
  if (input_gradient_.size() > 0) {
    multiply(dy, operand(weight_.value().data(), outputs_, inputs_),
             {input_gradient_.data(), rows_, inputs_, inputs_});
  }
  return input_gradient_.span();
}

}  // namespace kolo::trainer
