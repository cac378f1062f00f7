#pragma once

#include <cstddef>
#include <string>

#include "trainer/compute/device.h"
#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// A dense layer: y = x · Wᵀ + b, or y = x · Wᵀ without bias.
///
/// Shape: x is [rows, inputs], W is [outputs, inputs], b is [outputs], y is [rows, outputs]. If no
///        backward pass follows, x may have fewer rows.
class Linear final : public Layer {
 public:
  struct Options {
    std::size_t rows;
    std::size_t inputs;
    std::size_t outputs;
    float deviation;  ///< Standard deviation of initial weights; biases start at zero.
    /// Whether `backward` computes the gradient of the input. A first layer does not need it;
    /// `backward` then returns an empty span.
    bool input_gradient = true;
    bool bias = true;
    /// This rank's part of the weight, and the ranks with the other parts. With axis 0, this rank
    /// has some outputs, and `backward` adds up the gradients of the input over `ranks`. With axis
    /// 1, it has some inputs, and `forward` adds up the outputs; a layer with axis 1 after one with
    /// axis 0 thus needs one sum per direction. `inputs` and `outputs` count those of all ranks.
    /// Source: Shoeybi et al., "Megatron-LM", 2019.
    Part part = {};
    TensorRanks ranks = {};
  };

  /// Registers `name`.weight and, with a bias, `name`.bias. `device` outlives the layer.
  Linear(Device& device, ParameterSet& parameters, const std::string& name, const Options& options);

  /// A layer without bias; its weight is a parameter of another layer. See `Options::ranks`.
  Linear(Device& device, Parameter& shared_weight, std::size_t rows, const TensorRanks& ranks = {});

  /// A layer whose weight is a parameter of another layer. Registers the bias `name`.bias.
  Linear(Device& device, ParameterSet& parameters, const std::string& name,
         Parameter& shared_weight, std::size_t rows);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  struct Parameters {
    Parameter& weight;
    Parameter* bias;  // null without a bias
  };
  Linear(Device& device, const Parameters& parameters, std::size_t rows, bool has_input_gradient,
         const TensorRanks& ranks);
  /// Adds up `values` over the ranks with the other parts, if the weight is divided along `axis`.
  void sum(std::size_t axis, std::span<float> values) {
    if (part_.axis == axis && !part_.is_whole()) ranks_.sum(weight_.name(), values);
  }

  std::size_t rows_;
  std::size_t inputs_;
  std::size_t outputs_;
  Products& products_;
  Parameter& weight_;
  Parameter* bias_;
  Part part_;
  TensorRanks ranks_;
  Tensor output_;
  Tensor input_gradient_;  // empty unless requested
  WeightFactor weight_factor_;
  Factor input_factor_, gradient_factor_;
};

}  // namespace kolo::trainer
