#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Layer norm: scales each row to mean 0 and variance 1, then applies a learnt gain and bias.
///
/// Shape: x and y are [rows, width]; x may have fewer rows if no backward pass follows. Registers
/// the parameters `name`.gain and `name`.bias.
class LayerNorm final : public Layer {
 public:
  LayerNorm(ParameterSet& parameters, const std::string& name, std::size_t rows, std::size_t width);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Parameter& gain_;
  Parameter& bias_;
  Tensor output_;
  Tensor mean_;
  Tensor rstd_;
  Tensor input_gradient_;
  std::span<const float> input_;
};

/// Batch normalization: scales each channel to mean 0 and variance 1 over the rows of a pass, then
/// applies a learnt gain and bias. Outside training it uses running statistics: each training pass
/// sets them to 0.9 of their old value plus 0.1 of the pass's mean and unbiased variance.
///
/// Padding rows do not count, and their input gradient is zero. Each pass of a step has its own
/// statistics. With `sum_over_ranks`, statistics and gradients cover the rows of all ranks. Without
/// it, each rank has its own statistics, and running statistics differ between ranks.
///
/// Shape:  x and y are [samples · rows_per_sample, channels]. Registers the parameters `name`.gain
///         and `name`.bias, and the buffers `name`.running_mean and `name`.running_variance.
/// Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015; epsilon and the factor 0.1 as in
///         PyTorch.
class BatchNorm final : public Layer {
 public:
  struct Options {
    std::size_t samples;
    std::size_t rows_per_sample;  ///< Number of pixels of an image.
    std::size_t channels;
    RankSums sum_over_ranks = {};  ///< Sums over ranks; empty: each rank has its own statistics.
  };

  BatchNorm(ParameterSet& parameters, const std::string& name, const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// Sets mean and rstd of the pass from `real_rows`, and updates the running statistics.
  void measure(std::span<const float> real_rows);
  void sum(const char* what, std::span<double> values) const;

  Options options_;
  std::string name_;
  Parameter& gain_;
  Parameter& bias_;
  Buffer& running_mean_;
  Buffer& running_variance_;
  Tensor output_;
  Tensor input_gradient_;
  Tensor mean_, rstd_;    // statistics of the pass
  Tensor a_, b_, c_;      // factors by channel: of the output, then of the input gradient
  std::size_t rows_ = 0;  // rows of the pass without padding
  double global_rows_ = 0.0;
  std::vector<double> sums_;
  std::span<const float> input_;
};

}  // namespace kolo::trainer
