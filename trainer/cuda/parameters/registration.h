#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/models/gpt.h"
#include "trainer/models/image_classifier.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer::cuda {

// The parameters of the models in trainer/models, registered with the same names, shapes, order and
// initial values, without the activations of a host model. A test compares each list with the
// model's own.

struct LinearParameters {
  Parameter& weight;  ///< [outputs, inputs]
  Parameter& bias;
};
struct LayerNormParameters {
  Parameter& gain;
  Parameter& bias;
};
struct ConvolutionParameters {
  Parameter& weight;  ///< [outputs, inputs, kernel, kernel]
  Parameter& bias;
};
struct BlockParameters {
  LayerNormParameters attention_norm;
  LinearParameters query_key_value;
  LinearParameters project;
  LayerNormParameters inner_norm;
  LinearParameters expand;
  LinearParameters contract;
};

struct GptParameters {
  Parameter& token;
  Parameter& position;
  std::vector<BlockParameters> blocks;
  LayerNormParameters final_norm;
};
struct MlpParameters {
  LinearParameters fc1, fc2, fc3;
};
struct LenetParameters {
  ConvolutionParameters conv1, conv2;
  LinearParameters fc1, fc2;
};

/// Lenet: 5 x 5 kernels, 16 and 32 channels, each followed by 2 x 2 pooling.
inline constexpr std::size_t kLenetKernel = 5;
inline constexpr std::size_t kLenetChannels[] = {16, 32};
/// Height or width after a convolution and pooling.
constexpr std::size_t lenet_reduced(std::size_t size) { return (size - kLenetKernel + 1) / 2; }

GptParameters register_gpt(ParameterSet& parameters, const Gpt::Options& shape);
MlpParameters register_mlp(ParameterSet& parameters, const ImageModelOptions& shape);
/// Errors: UsageError for images smaller than 16 x 16.
LenetParameters register_lenet(ParameterSet& parameters, const ImageModelOptions& shape);

}  // namespace kolo::trainer::cuda
