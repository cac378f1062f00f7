#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/layers/dropout.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/tanh.h"

namespace kolo::trainer {

/// Rows to the tokens that they stand for: norm(gelu(dense(x))) · tableᵀ + bias.
///
/// Shape: x is [rows, width], y is [rows, tokens], the table [tokens, width]. Registers
///        masked.dense, masked.norm and masked.output.bias.
class MaskedTokenHead final : public Layer {
 public:
  struct Options {
    std::size_t rows;
    float deviation;  ///< Of initial weights.
  };

  /// `table` is that of the embedding.
  MaskedTokenHead(Device& device, ParameterSet& parameters, Parameter& table,
                  const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Linear dense_;
  Gelu gelu_;
  LayerNorm norm_;
  Linear output_;
};

/// Rows of whole texts to classes: classifier(drop(tanh(pooler(x)))).
///
/// Shape: x is [texts, width], y is [texts, classes]. Registers pooler and classifier.
class TextClassHead final : public Layer {
 public:
  struct Options {
    std::size_t texts;
    std::size_t width;
    std::size_t classes;
    float deviation;  ///< Of initial weights.
    float dropout;    ///< Share; see Dropout.
    std::uint64_t seed;
    std::uint64_t dropout_layer;
  };

  TextClassHead(Device& device, ParameterSet& parameters, const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  Linear pooler_;
  Tanh tanh_;
  Dropout dropout_;
  Linear classifier_;
};

}  // namespace kolo::trainer
