#include "trainer/layers/linear.h"

#include <utility>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

Linear::Linear(Device& device, ParameterSet& parameters, const std::string& name, const Options& o)
    : Linear(device,
             // Braces guarantee that the weight is registered before the bias.
             Parameters{parameters.add(name + ".weight", {o.outputs, o.inputs},
                                       {.deviation = o.deviation}, o.part),
                        o.bias ? &parameters.add(name + ".bias", {o.outputs}, {},
                                                 o.part.axis == 0 ? o.part : Part())
                               : nullptr},
             o.rows, o.input_gradient, o.ranks) {}

Linear::Linear(Device& device, Parameter& shared_weight, std::size_t rows, const TensorRanks& ranks)
    : Linear(device, Parameters{shared_weight, nullptr}, rows, true, ranks) {
  weight_.share();
}

Linear::Linear(Device& device, ParameterSet& parameters, const std::string& name,
               Parameter& shared_weight, std::size_t rows)
    : Linear(device,
             Parameters{shared_weight,
                        &parameters.add(name + ".bias", {shared_weight.shape()[0]}, {})},
             rows, true, {}) {
  weight_.share();
}

Linear::Linear(Device& device, const Parameters& parameters, std::size_t rows,
               bool has_input_gradient, const TensorRanks& ranks)
    : rows_(rows),
      inputs_(parameters.weight.shape()[1]),
      outputs_(parameters.weight.shape()[0]),
      products_(device.products()),
      weight_(parameters.weight),
      bias_(parameters.bias),
      part_(weight_.part()),
      ranks_(ranks),
      output_({rows_, outputs_}),
      input_gradient_({has_input_gradient ? rows_ : 0, inputs_}),
      weight_factor_(device, weight_),
      input_factor_(device, rows_ * inputs_),
      gradient_factor_(device, rows_ * outputs_) {}

std::span<const float> Linear::forward(std::span<const float> input, const Pass&) {
  const std::size_t rows = input.size() / inputs_;
  check(rows <= rows_ && rows * inputs_ == input.size(), "a dense layer takes whole rows");
  weight_factor_.refresh();
  input_factor_.assign(input);
  const Operand x = input_factor_.operand(rows, inputs_);
  const Operand w = transposed(weight_factor_.operand());
  const Matrix y = {output_.data(), rows, outputs_, outputs_};
  if (bias_ != nullptr && (part_.axis == 0 || part_.index == 0)) {  // one term of a sum has it
    products_.multiply(x, w, std::as_const(*bias_).value(), y);
  } else {
    products_.multiply(x, w, y);
  }
  const std::span<float> output = output_.span().first(rows * outputs_);
  sum(1, output);
  return output;
}

std::span<const float> Linear::backward(std::span<const float> output_gradient) {
  gradient_factor_.assign(output_gradient);
  const Operand dy = gradient_factor_.operand(rows_, outputs_);
  const Contribution dw = weight_.contribution(dy.dtype);
  products_.multiply(transposed(dy), input_factor_.operand(rows_, inputs_),
                     {dw.data, outputs_, inputs_, inputs_, dw.dtype}, dw.into);
  weight_.contributed();
  if (bias_ != nullptr) {
    sum_rows(output_gradient, bias_->gradient(), bias_->next_contribution());
    bias_->contributed();
  }
  if (input_gradient_.size() > 0) {
    products_.multiply(dy, weight_factor_.operand(),
                       {input_gradient_.data(), rows_, inputs_, inputs_});
    sum(0, input_gradient_.span());
  }
  return input_gradient_.span();
}

}  // namespace kolo::trainer
